"""The methods. One line per method registers its classes with transformers' Auto classes and with the command line.
Another package registers its method with the same line when it is imported:

    register_method(Method(ToyConfig, ToyModel, ToyProcessor, "toy.trainer:ToyTrainer", files=Path(__file__).parent))
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import transformers
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModel,
    AutoProcessor,
    PreTrainedConfig,
    PreTrainedModel,
    ProcessorMixin,
)
from transformers.pipelines import PIPELINE_REGISTRY

from .configuration.configuration_consistency import CrossLingualConsistencyConfig
from .configuration.configuration_etcl import EtclConfig
from .configuration.configuration_liwe import LiweConfig
from .configuration.configuration_mla import MlaConfig, MlaStudentConfig, RidgeConfig
from .configuration.configuration_mural import MuralConfig
from .configuration.configuration_rc3 import Rc3Config
from .configuration.configuration_smalr import SmalrConfig
from .inference.pipelines import (
    ImageEmbeddingPipeline,
    MultilingualFeatureExtractionPipeline,
    MultilingualZeroShotPipeline,
)
from .inference.rc3_pipelines import ImageTextRetrievalPipeline, ImageTranslationPipeline, QuestionAnsweringPipeline
from .modeling import peft_mla as peft_mla  # registers the adapters with PEFT
from .modeling.modeling_consistency import CrossLingualConsistency
from .modeling.modeling_etcl import EtclModel
from .modeling.modeling_liwe import LiweModel
from .modeling.modeling_mla import MlaModel
from .modeling.modeling_mla_student import MlaStudentModel
from .modeling.modeling_mural import MuralModel
from .modeling.modeling_rc3 import Rc3Model
from .modeling.modeling_rc3_pretraining import Rc3ForPreTraining
from .modeling.modeling_rc3_tasks import TASK_MODELS
from .modeling.modeling_ridge import RidgeModel
from .modeling.modeling_smalr import SmalrModel
from .processing.image_processing_mural import MuralImageProcessor
from .processing.processing_etcl import EtclProcessor
from .processing.processing_liwe import LiweProcessor
from .processing.processing_mla import MlaProcessor, MlaStudentProcessor
from .processing.processing_mural import MuralProcessor
from .processing.processing_rc3 import Rc3Processor
from .processing.processing_ridge import RidgeProcessor
from .processing.processing_smalr import SmalrProcessor
from .utils import hub_mixin


@dataclass(frozen=True)
class Method:
    """The parts of a method: its configuration, whose `model_type` is the method's name, its model and processor. The
    `trainer` and the `ModelBuilder`s of its recipes and of those that fine-tune it on a task (`task_builder`) are
    named as `module:name`, and imported for training. `heads` are models for single tasks, with the configuration of
    `model`. `files` is the folder of another package with its `presets/*.json` and `model_cards/<name>.md`."""

    config: type[PreTrainedConfig]
    model: type[PreTrainedModel]
    processor: type[ProcessorMixin]
    trainer: str
    builder: str = "babelens.training.build:ModelBuilder"
    task_builder: str | None = None
    heads: tuple[type[PreTrainedModel], ...] = ()
    files: Path | None = None

    @property
    def name(self) -> str:
        return self.config.model_type

    @property
    def models(self) -> tuple[type[PreTrainedModel], ...]:
        return (self.model, *self.heads)


_TRAINERS, _TRAINING = "babelens.trainers", "babelens.training"
_MLA_TRAINER = f"{_TRAINERS}.mla:MlaTrainer"

_OWN_METHODS = (
    Method(
        MuralConfig, MuralModel, MuralProcessor, f"{_TRAINERS}.mural:MuralTrainer", f"{_TRAINING}.build:MuralBuilder"
    ),
    Method(MlaConfig, MlaModel, MlaProcessor, _MLA_TRAINER, f"{_TRAINING}.mla:MlaBuilder"),
    Method(MlaStudentConfig, MlaStudentModel, MlaStudentProcessor, _MLA_TRAINER, f"{_TRAINING}.mla:MlaStudentBuilder"),
    Method(EtclConfig, EtclModel, EtclProcessor, f"{_TRAINERS}.mural:EtclTrainer", f"{_TRAINING}.build:EtclBuilder"),
    Method(
        SmalrConfig, SmalrModel, SmalrProcessor, f"{_TRAINERS}.smalr:SmalrTrainer", f"{_TRAINING}.smalr:SmalrBuilder"
    ),
    Method(LiweConfig, LiweModel, LiweProcessor, f"{_TRAINERS}.smalr:LiweTrainer", f"{_TRAINING}.smalr:LiweBuilder"),
    Method(
        Rc3Config,
        Rc3Model,
        Rc3Processor,
        f"{_TRAINERS}.rc3:Rc3Trainer",
        f"{_TRAINING}.rc3:Rc3Builder",
        f"{_TRAINING}.rc3_tasks:Rc3TaskBuilder",
        heads=(Rc3ForPreTraining, *TASK_MODELS),
    ),
)
METHODS = {method.name: method for method in _OWN_METHODS}  # all methods, by name
_PIPELINES = (
    *(MultilingualZeroShotPipeline, MultilingualFeatureExtractionPipeline, ImageEmbeddingPipeline),
    *(QuestionAnsweringPipeline, ImageTranslationPipeline, ImageTextRetrievalPipeline),
)


def register_method(method: Method) -> None:
    """Adds a method to `METHODS`, to transformers' Auto classes and to the presets. Repeated calls are harmless."""
    METHODS[method.name] = method
    if method.files is not None:
        from .presets import add_preset_folder  # `import babelens` needs none

        add_preset_folder(method.files / "presets")
    register_classes(method.config, method.models, method.processor)


def register_classes(
    config: type[PreTrainedConfig], models: Sequence[type[PreTrainedModel]], processor: type[ProcessorMixin]
) -> None:
    """Adds classes to transformers' Auto classes. Repeated calls are harmless."""
    AutoConfig.register(config.model_type, config, exist_ok=True)
    for model in models:
        for name in model.auto_classes:
            getattr(transformers, name).register(config, model, exist_ok=True)
    AutoProcessor.register(config, processor, exist_ok=True)
    AutoImageProcessor.register(config, image_processor_classes={"pil": MuralImageProcessor}, exist_ok=True)


def dual_encoder_of(kind: str) -> type[PreTrainedModel] | None:
    """The dual encoder of babelens with this `model_type`, whether it is trained or solved in closed form."""
    if kind == RidgeConfig.model_type:
        return RidgeModel
    model = METHODS[kind].model if kind in METHODS else None
    return model if hasattr(model, "get_image_features") else None


def imported(reference: str) -> Any:
    """The object that `module:name` names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def register() -> None:
    """Registers every method with transformers' Auto classes and pipelines. Repeated calls are harmless."""
    for pipeline in _PIPELINES:
        task, auto_class = pipeline.hub_task
        known = PIPELINE_REGISTRY.supported_tasks.get(task, {})
        if known.get("impl") is not pipeline:
            models = known.get("pt", (getattr(transformers, auto_class),))
            PIPELINE_REGISTRY.supported_tasks[task] = {"type": "multimodal"} | known | {"impl": pipeline, "pt": models}
        # Version 5 refuses the names of tasks that it removed, also where they are registered.
        transformers.pipelines.REMOVED_TASKS.pop(task, None)
    AutoConfig.register(CrossLingualConsistencyConfig.model_type, CrossLingualConsistencyConfig, exist_ok=True)
    AutoModel.register(CrossLingualConsistencyConfig, CrossLingualConsistency, exist_ok=True)
    register_classes(RidgeConfig, (RidgeModel,), RidgeProcessor)  # solved by `acquire`; no recipe trains it
    for method in METHODS.values():
        register_method(method)


def _pushed_card(*pushed: Any, **given: Any) -> str | None:
    """Calls `publishing.pushed_card`, which is imported only when something is pushed."""
    card: str | None = imported("babelens.publishing:pushed_card")(*pushed, **given)
    return card


hub_mixin.card_writer = _pushed_card
register()  # modules that import this one, such as builders, use the Auto classes

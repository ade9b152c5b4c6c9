"""The methods: one line for each registers its classes with transformers' Auto classes."""

from dataclasses import dataclass

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
from transformers.image_processing_utils import BaseImageProcessor

from .configuration.configuration_consistency import CrossLingualConsistencyConfig
from .configuration.configuration_etcl import EtclConfig
from .configuration.configuration_liwe import LiweConfig
from .configuration.configuration_mla import MlaConfig
from .configuration.configuration_mla_student import MlaStudentConfig
from .configuration.configuration_mural import MuralConfig
from .configuration.configuration_rc3 import Rc3Config
from .configuration.configuration_smalr import SmalrConfig
from .inference.loading import register_adapter_loader
from .inference.mla_adapters import load_mla_adapter
from .inference.pipeline import register_pipeline
from .modeling import peft_mla as peft_mla  # importing it registers the adapters with PEFT
from .modeling.modeling_consistency import CrossLingualConsistency
from .modeling.modeling_etcl import EtclModel
from .modeling.modeling_liwe import LiweModel
from .modeling.modeling_mla import MlaModel
from .modeling.modeling_mla_student import MlaStudentModel
from .modeling.modeling_mural import MuralModel
from .modeling.modeling_rc3 import Rc3Model, task_models
from .modeling.modeling_smalr import SmalrModel
from .processing.image_processing_mural import MuralImageProcessor
from .processing.processing_etcl import EtclProcessor
from .processing.processing_liwe import LiweProcessor
from .processing.processing_mla import MlaProcessor
from .processing.processing_mla_student import MlaStudentProcessor
from .processing.processing_mural import MuralProcessor
from .processing.processing_rc3 import Rc3Processor
from .processing.processing_smalr import SmalrProcessor


@dataclass(frozen=True)
class Method:
    """The classes that make up a method; module and name of its trainer and of the classes that run its recipes, of
    fine-tuning on a task apart from others, which are imported when somebody trains. `heads` are models for single
    tasks, on the configuration of the `model`."""

    config: type[PreTrainedConfig]
    model: type[PreTrainedModel]
    processor: type[ProcessorMixin]
    image_processor: type[BaseImageProcessor]
    trainer: str
    run: str = "babelens.workflows.base:RecipeRun"
    task_run: str | None = None
    heads: tuple[type[PreTrainedModel], ...] = ()

    @property
    def name(self) -> str:
        return self.config.model_type

    @property
    def models(self) -> tuple[type[PreTrainedModel], ...]:
        return (self.model, *self.heads)


METHODS = {
    method.name: method
    for method in (
        Method(MuralConfig, MuralModel, MuralProcessor, MuralImageProcessor, "babelens.trainers.mural:MuralTrainer"),
        Method(
            MlaConfig,
            MlaModel,
            MlaProcessor,
            MuralImageProcessor,
            "babelens.trainers.mla:MlaTrainer",
            run="babelens.workflows.mla:MlaRun",
        ),
        Method(
            MlaStudentConfig,
            MlaStudentModel,
            MlaStudentProcessor,
            MuralImageProcessor,
            "babelens.trainers.mla:MlaTrainer",
            run="babelens.workflows.mla_student:MlaStudentRun",
        ),
        Method(
            EtclConfig,
            EtclModel,
            EtclProcessor,
            MuralImageProcessor,
            "babelens.trainers.etcl:EtclTrainer",
            run="babelens.workflows.etcl:EtclRun",
        ),
        Method(
            SmalrConfig,
            SmalrModel,
            SmalrProcessor,
            MuralImageProcessor,
            "babelens.trainers.smalr:SmalrTrainer",
            run="babelens.workflows.smalr:SmalrRun",
        ),
        Method(
            LiweConfig,
            LiweModel,
            LiweProcessor,
            MuralImageProcessor,
            "babelens.trainers.liwe:LiweTrainer",
            run="babelens.workflows.liwe:LiweRun",
        ),
        Method(
            Rc3Config,
            Rc3Model,
            Rc3Processor,
            MuralImageProcessor,
            "babelens.trainers.rc3:Rc3Trainer",
            run="babelens.workflows.rc3:Rc3Run",
            task_run="babelens.workflows.rc3_tasks:Rc3TaskRun",
            heads=task_models(),
        ),
    )
}


def register() -> None:
    """Makes transformers' Auto classes know every method, and its pipelines their tasks; harmless when repeated."""
    register_pipeline()
    register_adapter_loader(peft_mla.MLA.value, load_mla_adapter)
    AutoConfig.register(CrossLingualConsistencyConfig.model_type, CrossLingualConsistencyConfig, exist_ok=True)
    AutoModel.register(CrossLingualConsistencyConfig, CrossLingualConsistency, exist_ok=True)
    for method in METHODS.values():
        AutoConfig.register(method.name, method.config, exist_ok=True)
        for model in method.models:
            for name in model.auto_classes:
                getattr(transformers, name).register(method.config, model, exist_ok=True)
        AutoProcessor.register(method.config, method.processor, exist_ok=True)
        AutoImageProcessor.register(
            method.config, image_processor_classes={"pil": method.image_processor}, exist_ok=True
        )

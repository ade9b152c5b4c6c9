"""babelens teaches vision-language models new languages, and publishes the result as ordinary Hugging Face models.

Importing it registers its models with transformers' Auto classes and its adapters with PEFT, without network. The
trainers and the evaluation are imported when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import quiet_start as quiet_start  # first: what follows takes seconds
from .configuration.configuration_consistency import CrossLingualConsistencyConfig
from .configuration.configuration_etcl import EtclConfig
from .configuration.configuration_liwe import LiweConfig
from .configuration.configuration_mla import MlaConfig
from .configuration.configuration_mla_student import MlaStudentConfig
from .configuration.configuration_mural import MuralConfig
from .configuration.configuration_rc3 import Rc3Config
from .configuration.configuration_smalr import SmalrConfig
from .configuration.errors import BabelensError
from .configuration.presets import load_preset
from .methods import METHODS, register
from .modeling.modeling_consistency import CrossLingualConsistency
from .modeling.modeling_etcl import EtclModel
from .modeling.modeling_liwe import LiweModel
from .modeling.modeling_mla import MlaModel
from .modeling.modeling_mla_student import MlaStudentModel
from .modeling.modeling_mural import MuralModel
from .modeling.modeling_rc3 import Rc3Model
from .modeling.modeling_rc3_pretraining import Rc3ForPreTraining
from .modeling.modeling_rc3_tasks import (
    Rc3ForConditionalGeneration,
    Rc3ForImageTextRetrieval,
    Rc3ForVisualEntailment,
    Rc3ForVisualQuestionAnswering,
    Rc3ForVisualReasoning,
)
from .modeling.modeling_smalr import SmalrModel
from .modeling.peft_mla import MlaAdapterConfig
from .processing.processing_etcl import EtclProcessor
from .processing.processing_liwe import LiweProcessor
from .processing.processing_mla import MlaProcessor
from .processing.processing_mla_student import MlaStudentProcessor
from .processing.processing_mural import MuralProcessor
from .processing.processing_rc3 import Rc3Processor
from .processing.processing_smalr import SmalrProcessor

if TYPE_CHECKING:
    from .evaluation.cross_encoder import CrossEncoder
    from .evaluation.embedder import Embedder
    from .trainers.arguments import (
        ContrastiveTrainingArguments,
        LiweTrainingArguments,
        MlaTrainingArguments,
        Rc3TaskTrainingArguments,
        Rc3TrainingArguments,
        SmalrTrainingArguments,
    )
    from .trainers.etcl import EtclTrainer
    from .trainers.liwe import LiweTrainer
    from .trainers.mla import MlaTrainer
    from .trainers.mural import MuralTrainer
    from .trainers.rc3 import Rc3Trainer
    from .trainers.rc3_tasks import Rc3TaskTrainer
    from .trainers.smalr import SmalrTrainer

__version__ = "0.1.0"

_LAZY = {
    "ContrastiveTrainingArguments": "trainers.arguments",
    "CrossEncoder": "evaluation.cross_encoder",
    "Embedder": "evaluation.embedder",
    "EtclTrainer": "trainers.etcl",
    "LiweTrainer": "trainers.liwe",
    "LiweTrainingArguments": "trainers.arguments",
    "MlaTrainer": "trainers.mla",
    "MlaTrainingArguments": "trainers.arguments",
    "MuralTrainer": "trainers.mural",
    "Rc3TaskTrainer": "trainers.rc3_tasks",
    "Rc3TaskTrainingArguments": "trainers.arguments",
    "Rc3Trainer": "trainers.rc3",
    "Rc3TrainingArguments": "trainers.arguments",
    "SmalrTrainer": "trainers.smalr",
    "SmalrTrainingArguments": "trainers.arguments",
}

__all__ = [
    "METHODS",
    "BabelensError",
    "ContrastiveTrainingArguments",
    "CrossEncoder",
    "CrossLingualConsistency",
    "CrossLingualConsistencyConfig",
    "Embedder",
    "EtclConfig",
    "EtclModel",
    "EtclProcessor",
    "EtclTrainer",
    "LiweConfig",
    "LiweModel",
    "LiweProcessor",
    "LiweTrainer",
    "LiweTrainingArguments",
    "MlaAdapterConfig",
    "MlaConfig",
    "MlaModel",
    "MlaProcessor",
    "MlaStudentConfig",
    "MlaStudentModel",
    "MlaStudentProcessor",
    "MlaTrainer",
    "MlaTrainingArguments",
    "MuralConfig",
    "MuralModel",
    "MuralProcessor",
    "MuralTrainer",
    "Rc3Config",
    "Rc3ForConditionalGeneration",
    "Rc3ForImageTextRetrieval",
    "Rc3ForPreTraining",
    "Rc3ForVisualEntailment",
    "Rc3ForVisualQuestionAnswering",
    "Rc3ForVisualReasoning",
    "Rc3Model",
    "Rc3Processor",
    "Rc3TaskTrainer",
    "Rc3TaskTrainingArguments",
    "Rc3Trainer",
    "Rc3TrainingArguments",
    "SmalrConfig",
    "SmalrModel",
    "SmalrProcessor",
    "SmalrTrainer",
    "SmalrTrainingArguments",
    "load_preset",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


register()

from .acquire import teach as teach
from .configuration.configuration_consistency import CrossLingualConsistencyConfig as CrossLingualConsistencyConfig
from .configuration.configuration_etcl import EtclConfig as EtclConfig
from .configuration.configuration_liwe import LiweConfig as LiweConfig
from .configuration.configuration_mla import (
    MlaConfig as MlaConfig,
    MlaStudentConfig as MlaStudentConfig,
    RidgeConfig as RidgeConfig,
)
from .configuration.configuration_mural import MuralConfig as MuralConfig
from .configuration.configuration_rc3 import Rc3Config as Rc3Config
from .configuration.configuration_smalr import SmalrConfig as SmalrConfig
from .inference.cross_encoder import CrossEncoder as CrossEncoder
from .inference.embedder import Embedder as Embedder
from .modeling.modeling_consistency import CrossLingualConsistency as CrossLingualConsistency
from .modeling.modeling_etcl import EtclModel as EtclModel
from .modeling.modeling_liwe import LiweModel as LiweModel
from .modeling.modeling_mla import MlaModel as MlaModel
from .modeling.modeling_mla_student import MlaStudentModel as MlaStudentModel
from .modeling.modeling_mural import MuralModel as MuralModel
from .modeling.modeling_rc3 import Rc3Model as Rc3Model
from .modeling.modeling_rc3_pretraining import Rc3ForPreTraining as Rc3ForPreTraining
from .modeling.modeling_rc3_tasks import (
    Rc3ForConditionalGeneration as Rc3ForConditionalGeneration,
    Rc3ForImageTextRetrieval as Rc3ForImageTextRetrieval,
    Rc3ForVisualEntailment as Rc3ForVisualEntailment,
    Rc3ForVisualQuestionAnswering as Rc3ForVisualQuestionAnswering,
    Rc3ForVisualReasoning as Rc3ForVisualReasoning,
)
from .modeling.modeling_ridge import RidgeModel as RidgeModel
from .modeling.modeling_smalr import SmalrModel as SmalrModel
from .modeling.peft_mla import MlaAdapterConfig as MlaAdapterConfig, save_adapter as save_adapter
from .presets import load_preset as load_preset
from .processing.image_processing_mural import MuralImageProcessor as MuralImageProcessor
from .processing.processing_etcl import EtclProcessor as EtclProcessor
from .processing.processing_liwe import LiweProcessor as LiweProcessor
from .processing.processing_mla import MlaProcessor as MlaProcessor, MlaStudentProcessor as MlaStudentProcessor
from .processing.processing_mural import MuralProcessor as MuralProcessor
from .processing.processing_rc3 import Rc3Processor as Rc3Processor
from .processing.processing_ridge import RidgeProcessor as RidgeProcessor
from .processing.processing_smalr import SmalrProcessor as SmalrProcessor
from .processing.regions import open_regions as open_regions
from .processing.tokenizer_training import train_wordpiece as train_wordpiece
from .registry import METHODS as METHODS, Method as Method, register_method as register_method
from .trainers.arguments import (
    ContrastiveTrainingArguments as ContrastiveTrainingArguments,
    LiweTrainingArguments as LiweTrainingArguments,
    MlaTrainingArguments as MlaTrainingArguments,
    Rc3TaskTrainingArguments as Rc3TaskTrainingArguments,
    Rc3TrainingArguments as Rc3TrainingArguments,
    SmalrTrainingArguments as SmalrTrainingArguments,
)
from .trainers.checkpoints import newest_checkpoint as newest_checkpoint
from .trainers.mla import MlaTrainer as MlaTrainer
from .trainers.mural import EtclTrainer as EtclTrainer, MuralTrainer as MuralTrainer
from .trainers.rc3 import Rc3Trainer as Rc3Trainer
from .trainers.rc3_tasks import Rc3TaskTrainer as Rc3TaskTrainer
from .trainers.smalr import LiweTrainer as LiweTrainer, SmalrTrainer as SmalrTrainer
from .utils.errors import BabelensError as BabelensError

__version__: str

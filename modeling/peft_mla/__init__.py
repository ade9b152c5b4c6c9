"""MLA as a method of PEFT: `get_peft_model(clip, MlaAdapterConfig(language="de"))`. Importing it registers it."""

from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING
from peft.utils import register_peft_method

from .config import MLA, MlaAdapterConfig
from .embedding import load_embedding, save_embedding
from .layer import MlaBlock, MlaEmbedding, MlaLayer
from .model import MlaAdapterModel

__all__ = [
    "MlaAdapterConfig",
    "MlaAdapterModel",
    "MlaBlock",
    "MlaEmbedding",
    "MlaLayer",
    "ModelFolderError",
    "ModelMismatchError",
    "load_embedding",
    "save_embedding",
]

if MLA not in PEFT_TYPE_TO_TUNER_MAPPING:
    register_peft_method(name="mla", config_cls=MlaAdapterConfig, model_cls=MlaAdapterModel)

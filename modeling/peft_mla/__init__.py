"""MLA as a PEFT method; importing this package registers it.

Examples:
    >>> model = get_peft_model(clip, MlaAdapterConfig(language="de"))
"""

from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING
from peft.utils import register_peft_method

from .config import MLA, MlaAdapterConfig
from .conversion import save_adapter, to_mla_model
from .model import MlaAdapterModel, MlaBlock, MlaEmbedding, MlaLayer

__all__ = [
    "MlaAdapterConfig",
    "MlaAdapterModel",
    "MlaBlock",
    "MlaEmbedding",
    "MlaLayer",
    "save_adapter",
    "to_mla_model",
]


if MLA not in PEFT_TYPE_TO_TUNER_MAPPING:
    register_peft_method(name="mla", config_cls=MlaAdapterConfig, model_cls=MlaAdapterModel)

from typing import Any

import torch
from peft import get_peft_model
from torch import nn
from transformers import CLIPConfig, CLIPModel

from babelens.modeling.peft_mla import MlaAdapterConfig

SEP, LENGTH = 3, 8
VOCABULARY: dict[str, Any] = {"vocab_size": 30, "embedding_size": 6, "sep_token_id": SEP, "acquirer_size": 4}
_TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
_TOKENS = {"vocab_size": 50, "max_position_embeddings": LENGTH, "bos_token_id": 48, "eos_token_id": 49}


def make_clip(seed: int = 0, **text: Any) -> CLIPModel:
    """The same at every call, with wide weights, so features depend on the inputs; `text` is of the text tower."""
    torch.manual_seed(seed)
    tower = _TINY | _TOKENS | {"pad_token_id": 0, "projection_size": 16} | text
    vision = _TINY | {"image_size": 8, "patch_size": 4}
    return CLIPModel(
        CLIPConfig(text_config=tower, vision_config=vision, projection_dim=8, initializer_factor=10.0)
    ).eval()


def with_adapters(base: nn.Module, *languages: str, **options: Any) -> Any:
    torch.manual_seed(1)
    configs = [MlaAdapterConfig(language=language, **VOCABULARY | options) for language in languages]
    model = get_peft_model(base, configs[0], adapter_name=languages[0])
    for config in configs[1:]:
        model.add_adapter(config.language, config)
    return model.eval()

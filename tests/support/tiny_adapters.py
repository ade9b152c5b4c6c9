"""A tiny CLIP and what describes adapters of MLA for it, without tokenizers."""

from typing import Any

import torch
from transformers import CLIPConfig, CLIPModel

SEP, LENGTH = 3, 8
VOCABULARY: dict[str, Any] = {"vocab_size": 30, "embedding_size": 6, "sep_token_id": SEP, "acquirer_size": 4}
_TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
_TOKENS = {"vocab_size": 50, "max_position_embeddings": LENGTH, "bos_token_id": 48, "eos_token_id": 49}


def make_clip(seed: int = 0, **text: Any) -> CLIPModel:
    """The same at every call, with weights that are wide enough for features to depend on what is read; `text` adds to
    its text tower's configuration."""
    torch.manual_seed(seed)
    tower = _TINY | _TOKENS | {"pad_token_id": 0, "projection_size": 16} | text
    vision = _TINY | {"image_size": 8, "patch_size": 4}
    return CLIPModel(
        CLIPConfig(text_config=tower, vision_config=vision, projection_dim=8, initializer_factor=10.0)
    ).eval()

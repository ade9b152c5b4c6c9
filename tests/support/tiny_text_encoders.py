import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase

from babelens.modeling.modeling_dual_encoder import build_tower
from babelens.processing.tokenizer_training import train_wordpiece

TEXTS = ["a red square", "a green bar", "ein rotes Quadrat", "ein grüner Balken", "un carré rouge", "query: "]
SIZES: dict[str, Any] = {
    "vocab_size": 120,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}
OTHERS: dict[str, dict[str, Any]] = {
    "clip_text_model": {"eos_token_id": 3},
    "siglip_text_model": {"projection_size": 24},
    "distilbert": {"hidden_dim": 32},
    "mt5": {"d_kv": 8, "d_ff": 32},
}


def tiny_tokenizer() -> PreTrainedTokenizerBase:
    return train_wordpiece(TEXTS, SIZES["vocab_size"])


def text_encoder(name: str, **sizes: int) -> PreTrainedModel:
    torch.manual_seed(0)
    return build_tower(AutoConfig.for_model(name, **SIZES | OTHERS.get(name, {}) | sizes), pooler=True).eval()


def saved_encoder(name: str, folder: Path, pooling: str | None = None) -> PreTrainedModel:
    """Saves a text encoder with a tokenizer; with `pooling`, as a folder of sentence-transformers."""
    model = text_encoder(name)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        width = {"word_embedding_dimension": SIZES["hidden_size"]}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(width | {f"pooling_mode_{pooling}": True}))
        parts = {"Transformer": "", "Pooling": "1_Pooling"}
        kinds = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for kind, path in parts.items()]
        modules = [{"idx": index, "name": str(index)} | each for index, each in enumerate(kinds)]
        (folder / "modules.json").write_text(json.dumps(modules))
    return model

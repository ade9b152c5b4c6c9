"""Text encoders of transformers that people bring, tiny and untrained, each as a folder with a tokenizer."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AltCLIPTextConfig,
    AltCLIPTextModel,
    BertConfig,
    BertModel,
    CLIPTextConfig,
    CLIPTextModel,
    DistilBertConfig,
    DistilBertModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    MT5Config,
    MT5EncoderModel,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    SiglipTextConfig,
    SiglipTextModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from babelens.processing.tokenizer_training import train_wordpiece

TEXTS = ["a red square", "a green bar", "ein rotes Quadrat", "ein grüner Balken", "un carré rouge", "query: "]
VOCABULARY = 120
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}

ENCODERS = {
    "bert": lambda: BertModel(BertConfig(**_SIZES)),
    "xlm-roberta": lambda: XLMRobertaModel(XLMRobertaConfig(**_SIZES)),
    "distilbert": lambda: DistilBertModel(
        DistilBertConfig(vocab_size=VOCABULARY, dim=16, n_layers=2, n_heads=2, hidden_dim=32, pad_token_id=0)
    ),
    "mpnet": lambda: MPNetModel(MPNetConfig(**_SIZES)),
    "modernbert": lambda: ModernBertModel(ModernBertConfig(**_SIZES)),
    "mt5": lambda: MT5EncoderModel(
        MT5Config(vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, pad_token_id=0)
    ),
    "clip_text_model": lambda: CLIPTextModel(CLIPTextConfig(**_SIZES, eos_token_id=3)),
    "siglip_text_model": lambda: SiglipTextModel(SiglipTextConfig(**_SIZES, projection_size=24)),
    "altclip_text_model": lambda: AltCLIPTextModel(AltCLIPTextConfig(**_SIZES, project_dim=12)),
}


def tiny_tokenizer() -> PreTrainedTokenizerBase:
    """A tokenizer of word pieces whose ids all encoders have."""
    return train_wordpiece(TEXTS, VOCABULARY)


def saved_encoder(name: str, folder: Path, pooling: str | None = None) -> PreTrainedModel:
    """Saves a text encoder with a tokenizer, and returns it.

    Args:
        name: one of `ENCODERS`.
        folder: where.
        pooling: what `1_Pooling/config.json` states, as in folders of sentence-transformers.
    """
    torch.manual_seed(0)
    model = ENCODERS[name]().eval()
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{pooling}": True}))
    return model

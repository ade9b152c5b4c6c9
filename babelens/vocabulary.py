"""The vocabulary that acquired languages share: an existing tokenizer and, where it belongs to a model, that model's
table (Zhang et al. 2022 take M-BERT's)."""

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerBase

from .processing.processing_mla import TokenizerError


def pretrained_table(source: str, tokenizer: PreTrainedTokenizerBase) -> Tensor | None:
    """The word-piece embeddings [vocabulary, size] of the model that a tokenizer belongs to.

    Args:
        source: folder or Hub id of the tokenizer.
        tokenizer: what was loaded from there.

    Returns:
        `None` when there is a tokenizer and no model.

    Raises:
        TokenizerError: when the model has fewer word pieces than the tokenizer.
    """
    if not _has_model(source):
        return None
    table = AutoModel.from_pretrained(source, dtype=torch.float32).get_input_embeddings().weight.detach()
    if len(table) < len(tokenizer):
        raise TokenizerError(f"{source}: the model has {len(table)} word pieces, and its tokenizer {len(tokenizer)}")
    return table


def _has_model(source: str) -> bool:
    """Whether a folder or repository has a model's configuration beside its tokenizer."""
    try:
        AutoConfig.from_pretrained(source)
    except (OSError, ValueError):
        return False
    return True

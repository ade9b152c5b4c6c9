"""Loads the towers of dual encoders from what others have published: folders, repositories of the Hub, or models."""

from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from ..configuration.feature_width import POOLER
from ..configuration.pretrained import load_config, load_model
from .towers import check_pooling, check_text_encoder, tower_class


def load_text_encoder(source: str | Path | PreTrainedModel, *, pooling: str, **loading: Any) -> PreTrainedModel:
    """Loads a text encoder of transformers.

    Args:
        source: a folder, a repository of the Hub, or a model that is loaded already.
        pooling: how its texts will be pooled. Weights of its pooling layer may be missing unless this is `pooler`:
            checkpoints of masked language modeling have none.
        loading: arguments of `from_pretrained`.

    Raises:
        ModelFolderError: if there is no such folder or repository, or one of its files is missing or damaged.
        ModelKindError: if it is no text encoder, or lacks the pooling.
        UntrustedCodeError: if the model needs code that comes with it.
    """
    if isinstance(source, PreTrainedModel):
        check_text_encoder(source.config)
        model = source
    else:
        config = load_config(source, **loading)
        check_text_encoder(config)
        model = load_model(tower_class(config), source, part=None if pooling == POOLER else _without_pooler, **loading)
    check_pooling(model, pooling)
    return model


def _without_pooler(model: PreTrainedModel) -> nn.Module:
    return nn.ModuleList(module for name, module in model.named_children() if name != "pooler")

"""Trims the vocabulary of a model: rows of embeddings and heads, and the token ids in its settings. The tensors to
trim are those whose shape changes when the model's class is built for the smaller vocabulary, without allocating
memory. For kept tokens, the model computes exactly the same. `processing.vocabulary_trimming` trims the tokenizer."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel

from ..utils.errors import InputError

# Settings that contain token ids: single ids, lists, lists of lists, or a mapping, as in `lang_code_to_id`.
_HOLDS_IDS = re.compile(r".*_token_(ids?|index)|(begin_)?suppress_tokens|(bad|force)_words_ids|lang(_code)?_to_id")

Settings = dict[str, Any]
Model = TypeVar("Model", bound=PreTrainedModel)


def vocabulary_size(config: PreTrainedConfig) -> int:
    """Returns the number of rows of a model's token embedding."""
    return _owner(config)[1].vocab_size


def named_token_ids(config: PreTrainedConfig, generation_config: GenerationConfig | None = None) -> set[int]:
    """Returns the token ids in a model's settings, such as [BOS], [PAD], a forced language or suppressed tokens."""
    found: list[int] = []
    for part in (_own(config), _own(_owner(config)[1]), generation_config.to_dict() if generation_config else {}):
        _renumbered(part, lambda number: found.append(number) or 0)  # type: ignore[func-returns-value]
    return set(found)


def trim_embeddings(model: Model, kept: Sequence[int]) -> Model:
    """Returns a new model in which token i is token `kept[i]` of the old model, which does not change; `kept` ascends
    and includes all ids that `named_token_ids` returns."""
    size = vocabulary_size(model.config)
    if not kept or kept[0] < 0 or kept[-1] >= size or any(a >= b for a, b in pairwise(kept)):
        raise InputError(f"the ids to keep must ascend, from 0 to at most {size - 1}")
    new_ids = {old: new for new, old in enumerate(kept)}

    def change(number: int) -> int:
        if number not in new_ids:
            raise InputError(f"the model's settings name token {number}, which is not among those to keep")
        return new_ids[number]

    key, part = _owner(model.config)
    settings = model.config.to_dict() | _renumbered(_own(model.config), change)
    owner = settings if key is None else settings[key]
    owner |= _renumbered(_own(part), change) | {"vocab_size": len(kept)}
    config = type(model.config).from_dict(settings)
    with torch.device("meta"):
        smaller = type(model)(config)
    shapes = {name: tensor.shape for name, tensor in smaller.state_dict().items()}
    rows = torch.tensor(kept)
    weights = {name: _cut(tensor, shapes[name], rows) for name, tensor in model.state_dict().items()}
    trimmed = type(model).from_pretrained(None, config=config, state_dict=weights, dtype=model.dtype)
    if getattr(model, "pooler", True) is None:  # an encoder that was loaded without its optional pooling layer
        trimmed.pooler = None
    if model.can_generate():
        generation = _renumbered(model.generation_config.to_dict(), change)
        trimmed.generation_config = GenerationConfig.from_dict(generation)
        head = trimmed.get_output_embeddings()
        if head is not None and len(head.weight) != len(kept):
            raise InputError(f"{type(model).__name__} predicts {len(head.weight)} tokens of a separate vocabulary")
    return trimmed.train(model.training)


def _owner(config: PreTrainedConfig) -> tuple[str | None, PreTrainedConfig]:
    """Returns the configuration with the vocabulary size, and its name in `config` if it is a part of it."""
    part = config if hasattr(config, "vocab_size") else config.get_text_config()
    if not hasattr(part, "vocab_size"):
        raise InputError(f"a model of type {config.model_type} has no vocabulary of tokens")
    return next((name for name in config.sub_configs if getattr(config, name, None) is part), None), part


def _own(config: PreTrainedConfig) -> Settings:
    """Returns a configuration's settings without the settings of its parts."""
    return {name: value for name, value in config.to_dict().items() if name not in config.sub_configs}


def _cut(tensor: Tensor, shape: torch.Size, rows: Tensor) -> Tensor:
    for axis, (old, new) in enumerate(zip(tensor.shape, shape, strict=True)):
        if old != new:
            tensor = tensor.index_select(axis, rows.to(tensor.device))
    return tensor


def _renumbered(settings: Settings, change: Callable[[int], int]) -> Settings:
    """Returns settings in which every token id is changed."""

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: changed(member) for name, member in value.items()}
        if isinstance(value, list | tuple):
            return [changed(member) for member in value]
        return change(value) if isinstance(value, int) and value >= 0 else value  # -1 and -100 are not tokens

    found: Settings = {}
    for name, value in settings.items():
        if _HOLDS_IDS.fullmatch(str(name)):
            found[name] = changed(value)
        elif name != "sequence_bias":  # its ids are of the old vocabulary
            found[name] = _renumbered(value, change) if isinstance(value, dict) else value  # `task_specific_params`
    return found

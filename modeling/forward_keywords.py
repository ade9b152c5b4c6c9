"""Keyword arguments that every `forward` accepts beside its own inputs: those of transformers, such as
`output_hidden_states`, which are passed to the towers. Any other is refused with an error that names it, because a
misspelt input would otherwise be ignored silently."""

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import Any

from torch import nn
from transformers.utils import TransformersKwargs

from ..configuration.errors import ArgumentError

# Keywords that transformers passes to all layers of a model, without two: positions are an input of texts, and
# `num_items_in_batch` is for losses that are sums over items, whereas those here are means.
_SHARED = frozenset(TransformersKwargs.__annotations__) - {"position_ids", "num_items_in_batch"}
# PEFT and Trainer pass these in every call, but no model here reads them.
_UNREAD = frozenset(["inputs_embeds", "decoder_inputs_embeds", "num_items_in_batch"])

Call = Callable[..., Any]


def tower_keywords(
    model: nn.Module, given: dict[str, Any], *towers: Sequence[Call], own: Sequence[str] = ()
) -> tuple[dict[str, Any], ...]:
    """Divides the further keyword arguments of a call between the towers.

    Args:
        model: the model that was called.
        given: its keyword arguments, without those of its own signature.
        towers: for each tower, the functions that receive the keywords; their parameters are the keywords it has.
        own: further keywords that all towers have.

    Returns:
        The keyword arguments of each tower.

    Raises:
        ArgumentError: for a keyword that no tower has, or for embeddings instead of token ids.
    """
    shared: dict[str, Any] = {}
    chosen: tuple[dict[str, Any], ...] = tuple({} for _ in towers)
    for name, value in given.items():
        if name in _SHARED or name in own:
            shared[name] = value
            continue
        if name == "num_items_in_batch" or (name in _UNREAD and value is None):
            continue
        takers = [mine for mine, calls in zip(chosen, towers, strict=True) if any(_names(c, name) for c in calls)]
        if not takers or name in _UNREAD:
            reason = "reads token ids, not" if name in _UNREAD else "takes no keyword"
            raise ArgumentError(f"{type(model).__name__} {reason} {name!r}")
        for mine in takers:
            mine[name] = value
    return tuple(shared | mine for mine in chosen)


def asks_for_states(given: dict[str, Any]) -> bool:
    """Returns whether keyword arguments ask for the hidden states or attentions of the layers."""
    return bool(given.get("output_hidden_states") or given.get("output_attentions"))


def _names(call: Call, name: str) -> bool:
    parameter = signature(call).parameters.get(name)
    return parameter is not None and parameter.kind is not Parameter.VAR_KEYWORD

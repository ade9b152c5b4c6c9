"""Merging nested settings: of a recipe with the one that it extends, of a preset with overrides."""

from collections.abc import Mapping
from typing import Any

_KIND = "model_type"


def merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings with nested changes.

    Mappings are merged key by key, unless the change names another `model_type`: settings of one kind of model mean
    nothing to another, and are replaced as a whole. So are lists.

        >>> merged({"text_config": {"hidden_size": 64, "num_hidden_layers": 2}}, {"text_config": {"hidden_size": 32}})
        {'text_config': {'hidden_size': 32, 'num_hidden_layers': 2}}
    """
    nested = {
        key: merged(settings[key], value)
        for key, value in changes.items()
        if isinstance(value, Mapping) and isinstance(settings.get(key), Mapping) and _same_kind(settings[key], value)
    }
    return {**settings, **changes, **nested}


def _same_kind(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> bool:
    return changes.get(_KIND, settings.get(_KIND)) == settings.get(_KIND)

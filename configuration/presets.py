"""Presets: published and tiny model sizes, as JSON files in `presets/`.

A preset file holds `method`, `config` (keyword arguments of the configuration), `paper` (parameter counts in
millions, as printed) and `source` (where they are printed).
"""

import json
from importlib.resources import files
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

_FOLDER = files(__package__) / "presets"


def list_presets() -> list[str]:
    """Returns the names that `load_preset` accepts, sorted."""
    return sorted(entry.name.removesuffix(".json") for entry in _FOLDER.iterdir() if entry.name.endswith(".json"))


def preset_facts(name: str) -> dict[str, Any]:
    """Returns the content of a preset file.

    Raises:
        ValueError: if no preset has that name.
    """
    if name not in list_presets():
        raise ValueError(f"there is no preset {name!r}; there are: {', '.join(list_presets())}")
    return json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def load_preset(name: str, **overrides: Any) -> PreTrainedConfig:
    """Returns the configuration of a preset.

    Args:
        name: one of `list_presets()`.
        overrides: configuration keys that replace those of the preset. A tower is merged key by key, so that
            `text_config={"vocab_size": 8000}` keeps the other settings of the text tower, unless it names another
            `model_type`.

    Raises:
        ValueError: if no preset has that name, or a key is unknown or impossible.

    Examples:
        >>> config = load_preset("mural-base", text_config={"vocab_size": 8000})
        >>> model = MuralModel(config)
    """
    facts = preset_facts(name)
    config = facts["config"]
    for key, value in overrides.items():
        config[key] = _merged(config.get(key), value)
    return AutoConfig.for_model(facts["method"], **config)


def _merged(preset: Any, override: Any) -> Any:
    if not isinstance(preset, dict) or not isinstance(override, dict):
        return override
    same_kind = override.get("model_type", preset.get("model_type")) == preset.get("model_type")
    return {**preset, **override} if same_kind else override

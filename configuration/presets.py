"""Presets: the published sizes and the tiny ones, as data in `presets/<name>.json`.

A preset file holds `method`, `config` (the configuration's keyword arguments), `paper` (parameter counts in millions
as printed) and `source` (where they are printed).
"""

import json
from importlib.resources import files
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

_FOLDER = files(__package__) / "presets"


def list_presets() -> list[str]:
    """The names that `load_preset` knows, sorted."""
    return sorted(entry.name.removesuffix(".json") for entry in _FOLDER.iterdir() if entry.name.endswith(".json"))


def preset_facts(name: str) -> dict[str, Any]:
    """The preset file's content.

    Raises:
        ValueError: when no preset has that name.
    """
    if name not in list_presets():
        raise ValueError(f"there is no preset {name!r}; there are: {', '.join(list_presets())}")
    return json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def load_preset(name: str, **overrides: Any) -> PreTrainedConfig:
    """The configuration of a preset: `load_preset("mural-base") -> MuralConfig`.

    Args:
        name: one of `list_presets()`.
        overrides: configuration keys that replace the preset's; towers are merged key by key
            (`text_config={"vocab_size": 8000}` keeps the preset's other text settings), unless they name another
            `model_type`.
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

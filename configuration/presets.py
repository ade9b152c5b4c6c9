"""Presets: published and tiny model sizes, as JSON files in `presets/`; other packages add their own folders.

A preset file holds `method`, `config` (keyword arguments of the configuration), `paper` (parameter counts in
millions, as printed) and `source` (where they are printed).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from ..utils.errors import did_you_mean

_KIND = "model_type"
_FOLDERS = [Path(__file__).with_name("presets")]


def add_preset_folder(folder: Path) -> None:
    """Adds a folder of presets to those that `load_preset` finds; repeating the call has no effect."""
    if folder not in _FOLDERS:
        _FOLDERS.append(folder)


def _files() -> dict[str, Path]:
    return {path.stem: path for folder in _FOLDERS for path in folder.glob("*.json")}


def list_presets() -> list[str]:
    """Returns the names that `load_preset` accepts, sorted."""
    return sorted(_files())


def preset_facts(name: str) -> dict[str, Any]:
    """Returns the content of a preset file."""
    known = _files()
    if name not in known:
        raise ValueError(f"there is no preset {name!r}; there are: {', '.join(sorted(known))}")
    return json.loads(known[name].read_text(encoding="utf-8"))


def load_preset(name: str, **overrides: Any) -> PreTrainedConfig:
    """Returns the configuration of one of `list_presets()`.

    `overrides` replace the preset's keys. Towers are merged key by key, so `text_config={"vocab_size": 8000}` keeps
    the other settings of the text tower, unless it names another `model_type`.

    Examples:
        >>> config = load_preset("mural-base", text_config={"vocab_size": 8000})
        >>> model = MuralModel(config)
    """
    facts = preset_facts(name)
    _check_keys(AutoConfig.for_model(facts["method"], **facts["config"]), overrides)
    return AutoConfig.for_model(facts["method"], **merged(facts["config"], overrides))


def _check_keys(config: PreTrainedConfig, changes: Mapping[str, Any], where: str = "") -> None:
    for key, value in changes.items():
        if key == "attn_implementation":  # a runtime setting, which configuration files do not hold
            continue
        if not hasattr(config, key):
            hint = did_you_mean(key, config.to_dict(), prefix=where)
            raise ValueError(f"{type(config).__name__} has no key {where + key!r}{hint}")
        tower = getattr(config, key)
        if isinstance(tower, PreTrainedConfig) and isinstance(value, Mapping) and _KIND not in value:
            _check_keys(tower, value, f"{where}{key}.")


def merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merges nested changes into nested settings: mappings are merged key by key, unless the change names another
    `model_type`; lists are replaced as a whole.

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

"""Presets: published and tiny model sizes, as JSON files in `configuration/presets`. A file holds `method`, `config`
(keyword arguments of the configuration), `paper` (printed parameter counts, in millions) and `source` (where they are
printed)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from .utils.errors import did_you_mean

_FOLDERS = [Path(__file__).with_name("configuration") / "presets"]


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
    if name not in (files := _files()):
        raise ValueError(f"there is no preset {name!r}; there are: {', '.join(list_presets())}")
    return json.loads(files[name].read_text(encoding="utf-8"))


def load_preset(name: str, **overrides: Any) -> PreTrainedConfig:
    """Returns the configuration of one of `list_presets()`, with some of its keys replaced (`merged`).

    >>> model = MuralModel(load_preset("mural-base", text_config={"vocab_size": 8000}))
    """
    facts = preset_facts(name)
    _check_keys(AutoConfig.for_model(facts["method"], **facts["config"]), overrides)
    return AutoConfig.for_model(facts["method"], **merged(facts["config"], overrides))


def _check_keys(config: PreTrainedConfig, changes: Mapping[str, Any], where: str = "") -> None:
    for key in sorted(changes.keys() - {"attn_implementation"}):  # a runtime setting, which files do not hold
        if not hasattr(config, key):
            hint = did_you_mean(key, config.to_dict(), prefix=where)
            raise ValueError(f"{type(config).__name__} has no key {where + key!r}{hint}")
        tower, value = getattr(config, key), changes[key]
        if isinstance(tower, PreTrainedConfig) and isinstance(value, Mapping) and "model_type" not in value:
            _check_keys(tower, value, f"{where}{key}.")


def merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merges nested changes into settings, key by key unless a change names another `model_type`; lists are replaced.

    >>> merged({"text_config": {"hidden_size": 64, "num_hidden_layers": 2}}, {"text_config": {"hidden_size": 32}})
    {'text_config': {'hidden_size': 32, 'num_hidden_layers': 2}}
    """
    found = {**settings, **changes}
    for key, value in changes.items():
        own = settings.get(key)
        if isinstance(value, Mapping) and isinstance(own, Mapping):
            kind = own.get("model_type")
            found[key] = merged(own, value) if value.get("model_type", kind) == kind else value
    return found

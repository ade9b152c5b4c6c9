"""Presets: the published sizes and the tiny ones, as data in `presets/<name>.json`; methods of other packages bring
folders of their own.

A preset file holds `method`, `config` (the configuration's keyword arguments), `paper` (parameter counts in millions
as printed) and `source` (where they are printed).
"""

import json
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from .merging import merged

_FOLDERS = [Path(__file__).with_name("presets")]


def add_preset_folder(folder: Path) -> None:
    """Adds the presets in a folder to those that `load_preset` knows; harmless when repeated."""
    if folder not in _FOLDERS:
        _FOLDERS.append(folder)


def _files() -> dict[str, Path]:
    return {path.stem: path for folder in _FOLDERS for path in folder.glob("*.json")}


def list_presets() -> list[str]:
    """The names that `load_preset` knows, sorted."""
    return sorted(_files())


def preset_facts(name: str) -> dict[str, Any]:
    """The preset file's content.

    Raises:
        ValueError: when no preset has that name.
    """
    known = _files()
    if name not in known:
        raise ValueError(f"there is no preset {name!r}; there are: {', '.join(sorted(known))}")
    return json.loads(known[name].read_text(encoding="utf-8"))


def load_preset(name: str, **overrides: Any) -> PreTrainedConfig:
    """The configuration of a preset: `load_preset("mural-base") -> MuralConfig`.

    Args:
        name: one of `list_presets()`.
        overrides: configuration keys that replace the preset's; mappings, such as towers, are merged key by key
            (`text_config={"vocab_size": 8000}` keeps the preset's other text settings), unless they name another
            `model_type`.
    """
    facts = preset_facts(name)
    return AutoConfig.for_model(facts["method"], **merged(facts["config"], overrides))

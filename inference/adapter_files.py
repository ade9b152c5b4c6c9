"""The files of adapters that PEFT saved."""

import json
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download

_OF_REPOSITORIES = ("cache_dir", "local_files_only", "revision", "token")


def fetched_adapter(source: str, loading: dict[str, Any]) -> str:
    """Returns the folder of an adapter, which is downloaded if it is a repository; without an assembled model inside
    of it."""
    if Path(source).is_dir():
        return source
    where = {name: loading[name] for name in _OF_REPOSITORIES if name in loading}
    return snapshot_download(source, ignore_patterns=["model/*"], **where)


def adapter_settings(folder: str | Path) -> dict[str, Any]:
    """Returns what `adapter_config.json` states.

    Raises:
        OSError: if there is none.
        ValueError: if it is no JSON object.
    """
    held = json.loads(Path(folder, "adapter_config.json").read_text("utf-8"))
    if not isinstance(held, dict):
        raise ValueError("adapter_config.json is no object")
    return held

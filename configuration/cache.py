"""Where babelens keeps what it can make again, beside what `datasets` keeps; without importing `datasets`."""

import os
from pathlib import Path

from huggingface_hub import constants


def cache_folder() -> Path:
    """The folder: `babelens` in the cache of `datasets`, which `HF_DATASETS_CACHE` moves."""
    return Path(os.environ.get("HF_DATASETS_CACHE", f"{constants.HF_HOME}/datasets")) / "babelens"

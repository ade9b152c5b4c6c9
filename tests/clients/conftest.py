"""Folders of tiny models for clients: `make test-slow` runs these tests in an environment without babelens."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDERS = os.environ.get("BABELENS_FOLDERS")

if FOLDERS is None:
    collect_ignore_glob = ["test_*.py"]


class Made:
    def __init__(self, root: Path, name: str) -> None:
        facts = np.load(root / "facts.npz")
        self.folder, self.path = root / name, str(root / name)
        self.texts, self.images = facts[f"{name}.texts"], facts[f"{name}.images"]


def _made(name: str) -> Any:
    return pytest.fixture(scope="session")(lambda: Made(Path(str(FOLDERS)), name))


stock = _made("stock")  # a MURAL as stock `AlignModel`
mural = _made("mural")  # another one with its code
mla = _made("mla")  # with its code; reads German other than English, and its texts were read in German
graphs = _made("graphs")  # `mural` as ONNX graphs


@pytest.fixture(scope="session")
def image_files() -> list[str]:
    return sorted(map(str, Path(str(FOLDERS), "images").glob("*.png")))


@pytest.fixture(autouse=True)
def without_babelens() -> Iterator[None]:
    yield
    assert "babelens" not in sys.modules

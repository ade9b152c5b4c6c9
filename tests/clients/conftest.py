"""Folders of tiny models, made once, for clients that know nothing of babelens.

`make test-slow` makes the folders and runs these tests in an environment of its own, which has the clients and lacks
babelens.
"""

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
    """A folder of a model, with what babelens computes with it.

    Args:
        folder: the folder.
        facts: embeddings of `TEXTS`, of the images, and those of the languages.
    """

    def __init__(self, folder: Path, facts: Any) -> None:
        self.folder, self.path = folder, str(folder)
        self.texts, self.images = facts[f"{folder.name}.texts"], facts[f"{folder.name}.images"]


@pytest.fixture(scope="session")
def root() -> Path:
    return Path(str(FOLDERS))


@pytest.fixture(scope="session")
def image_files(root: Path) -> list[str]:
    return sorted(map(str, (root / "images").glob("*.png")))


def _made(root: Path, name: str) -> Made:
    return Made(root / name, np.load(root / "facts.npz"))


@pytest.fixture(scope="session")
def stock(root: Path) -> Made:
    """A MURAL as stock `AlignModel`."""
    return _made(root, "stock")


@pytest.fixture(scope="session")
def mural(root: Path) -> Made:
    """The same MURAL with its code."""
    return _made(root, "mural")


@pytest.fixture(scope="session")
def mla(root: Path) -> Made:
    """An MLA with its code, which reads German other than English; its texts were read in German."""
    return _made(root, "mla")


@pytest.fixture(scope="session")
def graphs(root: Path) -> Made:
    """The MURAL as ONNX graphs."""
    return _made(root, "graphs")


@pytest.fixture(autouse=True)
def without_babelens() -> Iterator[None]:
    yield
    assert "babelens" not in sys.modules

"""A tiny published model."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def published(tmp_path_factory, make_mural) -> Path:
    """A folder as training leaves it: model and processor, saved one after the other. Not to be changed."""
    folder = tmp_path_factory.mktemp("published") / "mural-tiny"
    for part in make_mural():
        part.save_pretrained(folder)
    return folder

"""Where the environment of a Space is."""

import os
from pathlib import Path

import pytest

VARIABLE = "BABELENS_SPACE"


@pytest.fixture(scope="session")
def space_python() -> Path:
    """The Python of the environment that `make test-space` makes from the Space's own requirements."""
    if VARIABLE not in os.environ:
        pytest.skip("make test-space makes the environment of a Space")
    return Path(os.environ[VARIABLE]).absolute() / "bin" / "python"

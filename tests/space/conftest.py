"""Where the environment of a Space is."""

import os
from pathlib import Path

import pytest

VARIABLE = "BABELENS_CLIENTS"


@pytest.fixture(scope="session")
def space_python() -> Path:
    """The Python of the environment that `make test-slow` makes for other programs, without babelens."""
    if VARIABLE not in os.environ:
        pytest.skip("make test-slow makes the environment")
    return Path(os.environ[VARIABLE]).absolute() / "bin" / "python"

import os
from pathlib import Path

import pytest

VARIABLE = "BABELENS_CLIENTS"


@pytest.fixture(scope="session")
def space_python() -> Path:
    if VARIABLE not in os.environ:
        pytest.skip("make test-slow makes the environment")
    return Path(os.environ[VARIABLE]).absolute() / "bin" / "python"

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.bare_python import linked_environment

CHECKOUT = Path(__file__).parents[2]
NOT_SOURCES = shutil.ignore_patterns("__pycache__", "*.egg-info")
COMMITTER = ("-c", "user.name=test", "-c", "user.email=test@localhost")


@pytest.fixture(scope="session")
def folders() -> list[str]:
    return sorted(entry.name for entry in (CHECKOUT / "babelens").iterdir() if entry.is_symlink())


@pytest.fixture(scope="session")
def run():
    def run(*command: str | Path, cwd: Path) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "GIT_"))}
        settings = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        settings |= {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run(command, cwd=cwd, env=kept | settings, **output)
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


@pytest.fixture(scope="session")
def sources(tmp_path_factory, folders) -> Path:
    sources = tmp_path_factory.mktemp("sources") / "babelens"
    for name in ("babelens", "tests", *folders):
        shutil.copytree(CHECKOUT / name, sources / name, symlinks=True, ignore=NOT_SOURCES)
    about = ("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff")
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "constraints.txt", *about):
        shutil.copy(CHECKOUT / name, sources)
    return sources


@pytest.fixture(scope="session")
def repository(sources, run) -> Path:
    for command in (["init", "--quiet"], ["add", "--all"], [*COMMITTER, "commit", "--quiet", "--message=all"]):
        run("git", *command, cwd=sources)
    return sources


@pytest.fixture(scope="session")
def make_environment(tmp_path_factory):
    """Makes copies of this environment without babelens; returns the folder of their programs."""
    return lambda: linked_environment(tmp_path_factory.mktemp("environment"))

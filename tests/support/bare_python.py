"""A Python without babelens: a virtual environment with all other packages of this one. Programs are forked from a
server that imports torch and transformers once, so each starts in milliseconds rather than in seconds."""

import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from tests.support.forked_programs import ForkedPrograms

_REFUSE = "import importlib.util\nassert importlib.util.find_spec('babelens') is None\n"
# Most of the programs import these.
_IMPORTS = f"""
{_REFUSE}
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoProcessor, AutoTokenizer, pipeline
from transformers import BertModel, CLIPModel, PreTrainedTokenizerFast, ResNetModel
"""


def linked_environment(folder: Path) -> Path:
    """A virtual environment with links to the installed packages except babelens; returns its programs' folder."""
    venv.create(folder, symlinks=True)
    site_packages = next(folder.glob("lib*/python*/site-packages"))
    for installed in (Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")):
        for package in installed.iterdir():
            link = site_packages / package.name
            if "babelens" not in package.name and package.suffix != ".pth" and not link.exists():
                link.symlink_to(package)
    return folder / "bin"


@contextmanager
def bare_python(folder: Path) -> Iterator[Callable[..., str]]:
    """Runs Python code in a folder, with variables that are set before anything is imported; returns its output."""
    python = linked_environment(folder / "venv") / "python"
    environment = {
        "PATH": os.environ["PATH"],
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_OFFLINE": "1",
        "MKL_CBWR": os.environ["MKL_CBWR"],
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
    }

    def run(code: str, *arguments: str | Path, **variables: str) -> str:
        given = [str(argument) for argument in arguments]
        if variables:
            command = [python, "-c", _REFUSE + code, *given]
            done = subprocess.run(command, cwd=folder, env=environment | variables, capture_output=True, text=True)
        else:
            done = programs.run(code, *given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with ForkedPrograms(python, _IMPORTS, folder, environment) as programs:
        yield run

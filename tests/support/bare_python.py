"""A Python without babelens: a virtual environment that has all that this one has, except the package.

Programs run in processes that are forked from a server, which imports torch and transformers once: a program then
starts in milliseconds rather than in seconds. Where processes cannot be forked, each program starts a Python anew.
"""

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from tests.support.forked_programs import ForkedPrograms

# What most of the programs import.
_IMPORTS = """
import importlib.util

assert importlib.util.find_spec("babelens") is None
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoProcessor, AutoTokenizer, pipeline
from transformers import BertModel, CLIPModel, PreTrainedTokenizerFast, ResNetModel
"""
_REFUSE = "import importlib.util\nassert importlib.util.find_spec('babelens') is None\n"


class BarePython:
    """Runs programs where babelens is not installed.

    Its site-packages holds links to the installed packages; babelens, and what leads to its sources, is left out.

    Args:
        folder: where the virtual environment is made; also the working directory of the programs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder / "venv", symlinks=True)
        self.python = folder / "venv/bin/python"
        site_packages = next((folder / "venv").glob("lib*/python*/site-packages"))
        for installed in (Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")):
            for package in installed.iterdir():
                link = site_packages / package.name
                if "babelens" not in package.name and package.suffix != ".pth" and not link.exists():
                    link.symlink_to(package)
        self._programs = ForkedPrograms(self.python, _IMPORTS, folder, self._environment())

    def run(self, code: str, *arguments: str | Path, **variables: str) -> str:
        """Runs Python code and returns what it prints.

        Args:
            code: the program.
            arguments: its arguments.
            variables: further variables of its environment, which are set before anything is imported.
        """
        given = [str(argument) for argument in arguments]
        if variables or not hasattr(os, "fork"):
            command = [self.python, "-c", _REFUSE + code, *given]
            environment = self._environment() | variables
            done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            return done.stdout
        done = self._programs.run(code, *given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HF_HOME": str(self.folder / "hf"),
            "HF_HUB_OFFLINE": "1",
            "MKL_CBWR": os.environ["MKL_CBWR"],
            "OMP_NUM_THREADS": str(torch.get_num_threads()),
        }

    def close(self) -> None:
        """Ends the server."""
        self._programs.close()


@contextmanager
def bare_python(folder: Path) -> Iterator[BarePython]:
    """A `BarePython` whose server ends with the block."""
    python = BarePython(folder)
    try:
        yield python
    finally:
        python.close()

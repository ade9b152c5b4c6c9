"""A Python without babelens: a virtual environment that has all that this one has, except the package.

Programs run in processes that are forked from a server, which imports torch and transformers once: a program then
starts in milliseconds rather than in seconds. Where processes cannot be forked, each program starts a Python anew.
"""

import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

# Reads one program after another from its standard input, and answers with what each has printed. The virtual
# environment does not find this file, whose folder holds modules that import babelens: it is given the source.
_SERVER = """
import importlib.util, io, json, os, sys, traceback

assert importlib.util.find_spec("babelens") is None
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoProcessor, AutoTokenizer, pipeline
from transformers import BertModel, CLIPModel, PreTrainedTokenizerFast, ResNetModel


def run(program):
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(program[name], os.O_WRONLY), number)
    sys.argv = ["-c", *program["arguments"]]
    code = 0
    try:
        exec(compile(program["code"], "<program>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


for line in sys.stdin:
    process = os.fork()
    if not process:
        run(json.loads(line))
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
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
        self._server: subprocess.Popen[str] | None = None

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
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            files = {name: str(Path(scratch) / name) for name in ("stdout", "stderr")}
            for file in files.values():
                Path(file).touch()
            status = self._ask({"code": code, "arguments": given} | files)
            assert status == 0, Path(files["stderr"]).read_text(encoding="utf-8")
            return Path(files["stdout"]).read_text(encoding="utf-8")

    def _ask(self, program: dict[str, Any]) -> int:
        server = self._server or self._started()
        assert server.stdin and server.stdout
        try:
            server.stdin.write(json.dumps(program) + "\n")
            server.stdin.flush()
            return int(server.stdout.readline())
        except BaseException:  # such as a timeout: its answer would be taken for that to the next program
            server.kill()
            self._server = None
            raise

    def _started(self) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        command = [self.python, "-c", _SERVER]
        self._server = subprocess.Popen(command, cwd=self.folder, env=self._environment(), **pipes)
        return self._server

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
        if self._server:
            self._server.communicate()


@contextmanager
def bare_python(folder: Path) -> Iterator[BarePython]:
    """A `BarePython` whose server ends with the block."""
    python = BarePython(folder)
    try:
        yield python
    finally:
        python.close()

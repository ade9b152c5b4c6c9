"""`.ci/run` names the tests that passed only the second time."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "run"
# Stands for `make`: one target fails once, another one twice, and a third breaks off when it is run again.
MAKE = """#!/bin/bash
case "$1,$PYTEST_ADDOPTS" in
    test,) echo "FAILED tests/a.py::test_x[b - c] - assert 1"; echo "ERROR tests/a.py::test_y - boom"; exit 1;;
    docs,) echo "FAILED tests/b.py::test_z"; echo "FAILED tests/b.py::test_w - no"; exit 1;;
    docs,*) echo "FAILED tests/b.py::test_z - another message"; exit 1;;
    test-live,) echo "FAILED tests/c.py::test_v"; exit 1;;
    test-live,*) exit 1;;
esac
"""


@pytest.mark.skipif(shutil.which("bash") is None or shutil.which("timeout") is None, reason="it is a script of bash")
def test_what_passes_only_the_second_time_is_named_as_flaky(tmp_path):
    (tmp_path / ".ci").mkdir()
    shutil.copy(SCRIPT, tmp_path / ".ci" / "run")
    make = tmp_path / "bin" / "make"
    make.parent.mkdir()
    make.write_text(MAKE)
    make.chmod(0o755)
    environment = os.environ | {"PATH": f"{make.parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        ["bash", str(tmp_path / ".ci" / "run")], env=environment, capture_output=True, text=True, timeout=60
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and done.stderr == ""
    assert [line.rpartition(": ")[2] for line in lines if line.startswith("flaky")] == [
        "tests/b.py::test_w",
        "tests/a.py::test_x[b - c]",
        "tests/a.py::test_y",
    ]
    results = [line.split(": ")[1].strip() for line in lines if line.startswith("make ")]
    assert results[:4] == ["passed", "FAILED", "passed the second time", "FAILED"]

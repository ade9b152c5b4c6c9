"""Commands look for no garbage among what they import."""

import subprocess
import sys

import pytest

BEGUN = """
import gc, sys
sys.argv[0] = {name!r}
from babelens.cli.starting import begin_work
begin_work()
print(gc.isenabled(), gc.get_freeze_count())
"""


@pytest.mark.parametrize("name", ["babelens", "program.py"])
def test_nobody_looks_for_garbage_among_what_a_command_imports(name):
    """And the work is collected as in any other program."""
    done = subprocess.run([sys.executable, "-c", BEGUN.format(name=name)], capture_output=True, text=True, check=True)
    is_enabled, frozen = done.stdout.split()
    assert is_enabled == "True"
    assert (int(frozen) > 100_000) == (name == "babelens")

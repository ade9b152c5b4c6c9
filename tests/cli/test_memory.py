"""Memory that a command keeps between the layers of a model."""

import platform
import subprocess
import sys

import pytest

from babelens.cli.starting import keep_freed_memory

# Counts the pages that are taken from the system anew while a buffer of 64 MiB is made, filled and freed ten times: at
# first, and when freed memory is kept.
PROGRAM = """
import ctypes, resource, sys
sys.argv[0] = "babelens"  # so that torch is not imported
from babelens.cli.starting import keep_freed_memory
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
def once():
    buffer = libc.malloc(2**26)
    ctypes.memset(buffer, 1, 2**26)
    libc.free(buffer)
def taken():
    once()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        once()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(taken())
assert keep_freed_memory()
print(taken())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_freed_buffers_are_used_again():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    returned, kept = map(int, done.stdout.split())
    assert kept < 100 < returned


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert not keep_freed_memory()


# ---- The collector of garbage ----

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


KEPT = """
import sys
sys.argv[0] = "babelens"
from babelens.cli.starting import begin_work
begin_work()

class Writer:
    def __init__(self, file):
        self.file, self.itself = open(file, "w"), self
        self.file.write("the last line")

Writer(sys.argv[1])
"""


def test_what_garbage_has_not_written_yet_is_written_at_the_end(tmp_path):
    subprocess.run([sys.executable, "-c", KEPT, tmp_path / "file"], check=True)
    assert (tmp_path / "file").read_text() == "the last line"

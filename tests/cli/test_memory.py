"""Memory that a command keeps between the layers of a model."""

import platform
import subprocess
import sys

import pytest

from babelens.cli.starting import keep_freed_memory

# Counts the pages that are taken from the system anew while a buffer of 64 MiB is made, filled and freed ten times.
PROGRAM = """
import ctypes, resource, sys
from babelens.cli.starting import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
def once():
    buffer = libc.malloc(2**26)
    ctypes.memset(buffer, 1, 2**26)
    libc.free(buffer)
once()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    once()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_freed_buffers_are_used_again():
    taken = {}
    for kept in ("kept", "returned"):
        done = subprocess.run([sys.executable, "-c", PROGRAM, kept], capture_output=True, text=True, check=True)
        taken[kept] = int(done.stdout)
    assert taken["kept"] < 100 < taken["returned"]


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert not keep_freed_memory()

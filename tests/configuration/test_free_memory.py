"""The memory that a process may still take, by the machine and by control groups."""

from types import SimpleNamespace

import psutil
import pytest
from control_groups_of import written_groups

from babelens.configuration import machine
from babelens.configuration.machine import available_memory, cgroup_memory_left

GIB = 2**30


def stat(**counts):
    return "".join(f"{name} {count}\n" for name, count in counts.items())


@pytest.mark.parametrize(
    ("own", "files", "left"),
    [
        # What the system only keeps as a cache of files is free.
        (
            "0::/\n",
            {"memory.max": f"{8 * GIB}\n", "memory.current": f"{3 * GIB}\n", "memory.stat": stat(inactive_file=GIB)},
            6 * GIB,
        ),
        ("0::/\n", {"memory.max": "max\n", "memory.current": "5\n", "memory.stat": stat(inactive_file=0)}, None),
        ("0::/\n", {"memory.max": "100\n", "memory.current": "140\n", "memory.stat": stat(anon=3)}, 0),
        ("0::/\n", {"memory.max": "nonsense\n"}, None),
        # What cannot be read of the cache counts as used.
        ("0::/\n", {"memory.max": "100\n", "memory.current": "40\n"}, 60),
        ("0::/\n", {"memory.max": "100\n", "memory.current": "40\n", "memory.stat": "a\nb c d\ninactive_file x"}, 60),
        ("0::/\n", {"memory.max": "100\n", "memory.high": "80\n", "memory.current": "40\n"}, 40),
        ("0::/\n", {"memory.max": "max\n", "memory.high": "80\n", "memory.current": "40\n"}, 40),
        ("0::/\n", {}, None),
        # The group above leaves less.
        (
            "0::/job/step\n",
            {
                "job/step/memory.max": "900",
                "job/step/memory.current": "100",
                "job/step/memory.stat": "",
                "job/memory.max": "1000",
                "job/memory.current": "400",
                "job/memory.stat": "",
            },
            600,
        ),
        (
            "4:memory:/job\n3:cpu:/\n",
            {
                "memory/job/memory.limit_in_bytes": "1000",
                "memory/job/memory.usage_in_bytes": "700",
                "memory/job/memory.stat": stat(inactive_file=1, total_inactive_file=50),
                "memory/memory.limit_in_bytes": "9223372036854771712",
                "memory/memory.usage_in_bytes": "99999",
                "memory/memory.stat": "",
            },
            350,
        ),
    ],
)
def test_what_control_groups_leave(tmp_path, own, files, left):
    assert cgroup_memory_left(**written_groups(tmp_path, own, files)) == left


@pytest.mark.parametrize(("left", "expected"), [(None, 700), (300, 300), (900, 700)])
def test_the_smaller_of_both_counts(monkeypatch, left, expected):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=700))
    monkeypatch.setattr(machine, "cgroup_memory_left", lambda: left)
    assert available_memory() == expected


def test_this_machine_has_memory():
    assert 0 < available_memory() <= psutil.virtual_memory().total

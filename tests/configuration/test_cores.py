"""The number of usable cores, by affinity and control groups."""

import os
import subprocess
import sys

import pytest
from control_groups_of import written_groups

from babelens.configuration import machine
from babelens.configuration.machine import cgroup_limit, usable_cores


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"cpu.max": "nonsense\n"}, None),
        ("0::/\n", {}, None),
        # The group above has the smaller limit.
        ("0::/job/step\n", {"job/step/cpu.max": "400000 100000", "job/cpu.max": "200000 100000"}, 2),
        # The path is that of the host; the container sees its own group as the root.
        ("0::/docker/abc\n", {"cpu.max": "300000 100000"}, 3),
        (
            "5:cpu,cpuacct:/job\n4:memory:/job\n",
            {"cpu/job/cpu.cfs_quota_us": "50000\n", "cpu/job/cpu.cfs_period_us": "100000\n"},
            0.5,
        ),
        ("5:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
    ],
)
def test_the_limit_of_control_groups(tmp_path, own, files, limit):
    assert cgroup_limit(**written_groups(tmp_path, own, files)) == limit


def test_other_systems_have_no_groups(tmp_path):
    assert cgroup_limit(tmp_path / "none", tmp_path / "none") is None


@pytest.mark.parametrize(("limit", "expected"), [(None, 6), (0.5, 1), (1.5, 2), (2, 2), (9, 6)])
def test_the_smaller_of_both_counts(monkeypatch, limit, expected):
    monkeypatch.setattr(os, "process_cpu_count", lambda: 6, raising=False)
    monkeypatch.setattr(machine, "cgroup_limit", lambda: limit)
    assert usable_cores() == expected


def test_without_affinity_the_cores_of_the_machine_count(monkeypatch):
    monkeypatch.delattr(os, "process_cpu_count", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.setattr(machine, "cgroup_limit", lambda: None)
    assert usable_cores() == 7


@pytest.mark.live
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity of processes")
def test_a_process_that_is_bound_to_one_core():
    code = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
    code += "from babelens.configuration.machine import usable_cores; print(usable_cores())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"

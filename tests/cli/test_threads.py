"""The threads of a command beside other processes."""

import os
import subprocess
import sys

import pytest

from babelens.cli import starting
from babelens.cli.starting import Load, fair_threads

PROGRAM = """
import sys
sys.argv[0] = "babelens"
from babelens.cli import starting
from dataclasses import replace
starting.start_measuring()
import torch
own = torch.get_num_threads()
# As if other processes had kept all cores busy since.
began = starting.Load.now()
starting._began = replace(began, at=began.at - 10, busy=began.busy - 10 * own)
starting.begin_work()
print(own, torch.get_num_threads())
"""
needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux tells what its cores do")


def test_a_thread_for_each_free_core_and_no_fewer_than_half_of_the_cores():
    assert [fair_threads(2, others) for others in (0, 0.4, 0.6, 2)] == [2, 2, 1, 1]
    assert [fair_threads(64, others) for others in (0, 10.2, 64)] == [64, 54, 32]
    assert fair_threads(1, 1) == 1 and fair_threads(3, 3) == 2


def test_what_this_process_does_itself_is_no_load():
    before = Load(at=0, busy=100, own=4)
    assert Load(at=10, busy=119, own=13).others_since(before) == pytest.approx(1.0)
    assert Load(at=10, busy=105, own=10).others_since(before) == 0  # clocks of different grain
    assert Load(at=0.1, busy=119, own=13).others_since(before) is None


@needs_linux
def test_only_the_cores_of_this_process_count(tmp_path):
    first, *_ = sorted(os.sched_getaffinity(0))
    row = "{} 100 200 300 5000 600 10 20 30 40 50\n"
    file = tmp_path / "stat"
    file.write_text(row.format("cpu") + row.format(f"cpu{first}") + row.format("cpu100000") + "intr 1 2 3\n")
    assert Load.now(file).busy * os.sysconf("SC_CLK_TCK") == 660
    assert Load.now(tmp_path / "hidden") is None
    file.write_text(f"cpu{first} x\n")
    assert Load.now(file) is None


@needs_linux
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core has one thread anyway")
@pytest.mark.parametrize("stated", [None, "2"])
def test_a_command_takes_fewer_threads_unless_told_how_many(stated):
    environment = {name: value for name, value in os.environ.items() if name not in starting._STATED}
    environment |= {} if stated is None else {"OMP_NUM_THREADS": stated}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    own, chosen = map(int, done.stdout.split())
    assert chosen < own if stated is None else chosen == own == 2

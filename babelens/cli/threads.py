"""Threads of a command beside other processes that keep the machine's cores busy.

The threads of a layer wait for each other, and the last one counts: where another process takes turns on one core, all
wait for that core, hundreds of times in a step. Some waits in the code that oneDNN generates spin, and keep the thread
that they wait for from its core until the scheduler takes it away. One thread to each core that is free avoids both.

The number is chosen once, before the first layer, since a result's last bits depend on it. How threads wait stays as
it is: with `OMP_WAIT_POLICY=passive` or a small `GOMP_SPINCOUNT`, steps beside two busy loops on two cores took from 2
to 19 times as long as without them, since the scheduler wakes both threads on one core, where one spins for the other.
"""

import logging
import math
import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ..configuration.cores import usable_cores

_STATED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_STATISTICS = Path("/proc/stat")
_SHORTEST = 0.2  # seconds in which the load can be measured: Linux counts in hundredths
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Load:
    """What the cores that this process may use have done so far.

    Args:
        at: seconds of a clock.
        busy: seconds that these cores have worked, for whatever process.
        own: seconds that this process and its finished children have worked.
    """

    at: float
    busy: float
    own: float

    @classmethod
    def now(cls, statistics: Path = _STATISTICS) -> Self | None:
        """None on a system that does not tell."""
        if not hasattr(os, "sched_getaffinity"):
            return None
        try:
            busy = _busy_seconds(statistics.read_text(encoding="ascii"), os.sched_getaffinity(0))
        except (OSError, ValueError, IndexError):  # a sandbox may hide it, or show something else
            return None
        return cls(time.monotonic(), busy, sum(os.times()[:4]))

    def others_since(self, earlier: "Load") -> float | None:
        """The number of cores that other processes have kept busy since then; None after too short a time."""
        seconds = self.at - earlier.at
        if seconds < _SHORTEST:
            return None
        return max(0.0, ((self.busy - earlier.busy) - (self.own - earlier.own)) / seconds)


_began: Load | None = None


def _busy_seconds(statistics: str, cores: Collection[int]) -> float:
    """The time that some cores have worked, by the lines `cpu0 user nice system idle iowait irq softirq steal …`."""
    names = {f"cpu{core}" for core in cores}
    rows = [row.split() for row in statistics.splitlines()]
    times = [[int(ticks) for ticks in row[1:9]] for row in rows if row and row[0] in names]
    return sum(sum(row) - row[3] - row[4] for row in times) / os.sysconf("SC_CLK_TCK")


def fair_threads(cores: int, others: float) -> int:
    """The number of threads for so many cores, of which others keep some busy: as many as are free, and no fewer than
    half of the cores, which is the share of this process beside one as large."""
    return max(round(cores - others), math.ceil(cores / 2), 1)


def start_measuring() -> None:
    """Notes the load of the machine when a command begins: its imports are the time in which the load is measured."""
    global _began
    _began = Load.now()


def take_fair_share() -> None:
    """Makes torch, which a command has just imported, use as many threads as there are free cores, and says so.

    `OMP_NUM_THREADS` and `MKL_NUM_THREADS`, the first of which torchrun sets, take precedence.
    """
    now = Load.now()
    if _began is None or now is None or any(name in os.environ for name in _STATED):
        return
    others, cores = now.others_since(_began), usable_cores()
    if others is None or (threads := fair_threads(cores, others)) >= cores:
        return
    import torch

    if threads < torch.get_num_threads():
        torch.set_num_threads(threads)
        logger.info(
            "Other processes keep %.1f of %d cores busy: computing with %s (OMP_NUM_THREADS chooses another number)",
            others,
            cores,
            "one thread" if threads == 1 else f"{threads} threads",
        )

"""What a command does with its process before its work: memory that is kept, threads, registered models.

The process is set up twice: when the command line starts, before any heavy import, and when the arguments of a command
have been checked (`begin_work`).
"""

import atexit
import ctypes
import gc
import io
import logging
import math
import os
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from .. import quiet_start
from ..configuration.machine import usable_cores


def begin_work() -> None:
    """Registers the models of babelens with transformers, as `import babelens` does in other programs.

    A command calls it when its arguments have been checked, and imports torch, transformers and datasets after that,
    which takes seconds. By then it is known how busy the machine is, which decides about threads.

    The imports make a million objects, of which none is garbage. To look for some among them takes a second during the
    imports, and one and a half at the end of the process: here, nobody does.
    """
    gc.disable()
    try:
        from ..registry import register

        register()
    finally:
        gc.enable()
    if quiet_start.is_command_line():
        gc.freeze()
        atexit.register(_leave_garbage)
    _hide_loading_bars()
    take_fair_share()
    quiet_start.raise_interrupts()


def _leave_garbage() -> None:
    """Leaves all objects to the system, which frees the memory of a process that ends. Python would find the files
    among the garbage, and write what is in their buffers."""
    for each in gc.get_objects():
        if type(each) in _BUFFERED and not each.closed:
            with suppress(OSError, ValueError):
                each.flush()
    gc.freeze()


_BUFFERED = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


def _hide_loading_bars() -> None:
    """Hides the progress bar that transformers shows for every model that it loads; downloads keep theirs."""
    from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
    from transformers.utils.logging import disable_progress_bar

    downloads_have_bars = not are_progress_bars_disabled()
    disable_progress_bar()
    if downloads_have_bars:
        enable_progress_bars()


# ---- Memory that the process keeps, instead of returning it to the system after every layer of a model ----
#
# glibc takes each buffer of more than some megabytes from the system, and returns it when it is freed. A
# convolutional tower frees such buffers at every layer, so that the system clears the same memory again and again:
# this took more than half of the time of an EfficientNet. Another C library has no `mallopt`, and its own ways.
# https://man7.org/linux/man-pages/man3/mallopt.3.html

# From malloc.h of glibc.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT = 2**30  # bytes: larger buffers, and more unused memory than this, are still returned


def keep_freed_memory() -> bool:
    """Makes glibc keep freed memory of up to 1 GiB; returns whether it does.

    Environment variables that state how glibc allocates (`MALLOC_…`, `GLIBC_TUNABLES`) take precedence. A program that
    uses babelens as a library has the same effect by `MALLOC_MMAP_THRESHOLD_=1073741824
    MALLOC_TRIM_THRESHOLD_=1073741824`.
    """
    is_stated = any(name.startswith("MALLOC_") for name in os.environ) or "glibc.malloc" in os.environ.get(
        "GLIBC_TUNABLES", ""
    )
    if not sys.platform.startswith("linux") or is_stated:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    return mallopt is not None and all(mallopt(each, _KEPT) == 1 for each in (_MMAP_THRESHOLD, _TRIM_THRESHOLD))


# ---- Threads beside other processes that keep the machine's cores busy ----
#
# The threads of a layer wait for each other, and the last one counts: where another process takes turns on one
# core, all wait for that core, hundreds of times in a step. Some waits in the code that oneDNN generates spin, and
# keep the thread that they wait for from its core until the scheduler takes it away. One thread to each core that
# is free avoids both.
#
# The number is chosen once, before the first layer, since a result's last bits depend on it. How threads wait
# stays as it is: with `OMP_WAIT_POLICY=passive` or a small `GOMP_SPINCOUNT`, steps beside two busy loops on two
# cores took from 2 to 19 times as long as without them, since the scheduler wakes both threads on one core, where
# one spins for the other.
#
# Beside four loops on two cores, one thread takes 2.7 times as long as by itself (its share would be 2.5), and 4.6
# times as long as two threads on a quiet machine. Two threads on a core each, which wait passively and take short
# turns (sched_setattr), take 5.6 times as long. Less than 4 would need more than a fair share, which is the system's
# to give.

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

"""The processor cores that this process may use: fewer than the machine has in a container or under `taskset`."""

import math
import os
from pathlib import Path

from .control_groups import GROUPS, OWN_GROUPS, group_folders


def usable_cores() -> int:
    """The number of cores by the affinity of the process and the limits of its control groups, at least 1.

    A limit of 1.5 cores counts as 2. `PYTHON_CPU_COUNT` and `-X cpu_count` change the number from Python 3.13 on.
    """
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        cores = os.process_cpu_count()
    elif hasattr(os, "sched_getaffinity"):  # neither macOS nor Windows has it
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count()
    limit = cgroup_limit()
    return max(1, cores or 1) if limit is None else max(1, min(cores or 1, math.ceil(limit)))


def cgroup_limit(root: Path = GROUPS, own: Path = OWN_GROUPS) -> float | None:
    """The smallest limit of processor time that the control groups of this process have, in cores; None for no limit.

    Args:
        root: the folder of the control groups, of version 1 or 2.
        own: the file with the groups of the process.
    """
    limits = []
    for folder in group_folders("cpu", root, own):
        limits += [
            _limit(folder / "cpu.max"),  # version 2
            _limit(folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us"),
        ]
    return min((limit for limit in limits if limit is not None), default=None)


def _limit(*files: Path) -> float | None:
    """The time per period in one file `time period`, or in two files."""
    try:
        time, period = (int(number) for number in " ".join(file.read_text(encoding="ascii") for file in files).split())
    except (OSError, ValueError):  # there is no such file; `max`
        return None
    return time / period if time > 0 and period > 0 else None

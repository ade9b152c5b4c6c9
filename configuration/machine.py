"""The cores and the memory that this process may use: fewer than the machine has in a container with limits."""

import math
import os
from pathlib import Path, PurePosixPath

# ---- Control groups ----
# The control groups of this process, by which Linux limits the processor time and the memory of a container.

GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")


def group_folders(controller: str, root: Path = GROUPS, own: Path = OWN_GROUPS) -> list[Path]:
    """The folders with the settings of a controller: those of the process's groups and of the groups above them.

    Some may not exist: in a container, whose own group is the root, the root alone does.

    Args:
        controller: its name, such as `cpu` or `memory`.
        root: the folder of the control groups, of version 1 or 2.
        own: the file with the groups of the process, `hierarchy:controllers:path` in each line.
    """
    folders: list[Path] = []
    for controllers, group in _groups(own):
        if not controllers:  # version 2
            folders += _with_those_above(root, group)
        elif controller in controllers.split(","):
            for name in sorted({controllers, *controllers.split(",")}):  # one folder, and links to it
                folders += _with_those_above(root / name, group)
    return folders


def _groups(own: Path) -> list[tuple[str, str]]:
    """The controllers and the path of each group of the process."""
    try:
        lines = own.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:  # another system than Linux
        return []
    split = [line.split(":", 2) for line in lines]
    return [(parts[1], parts[2]) for parts in split if len(parts) == 3]


def _with_those_above(root: Path, group: str) -> list[Path]:
    inner = PurePosixPath(group.lstrip("/"))
    return [root / inner, *(root / parent for parent in inner.parents)] if inner.parts else [root]


# ---- The memory that this process may still take: less than the machine has in a container with a limit ----

_UNLIMITED = 2**60  # version 1 writes no limit as the largest number of pages


def available_memory() -> int:
    """The memory in bytes that can be taken without swapping, by the machine and the limits of the control groups."""
    import psutil  # not at the top: the command line asks for the number of cores before anything else

    left = cgroup_memory_left()
    available: int = psutil.virtual_memory().available
    return available if left is None else min(available, left)


def cgroup_memory_left(root: Path = GROUPS, own: Path = OWN_GROUPS) -> int | None:
    """The smallest number of bytes that a control group of this process leaves to it; None for no limit.

    Args:
        root: the folder of the control groups, of version 1 or 2.
        own: the file with the groups of the process.
    """
    left = [_left(folder) for folder in group_folders("memory", root, own)]
    return min((number for number in left if number is not None), default=None)


def _left(folder: Path) -> int | None:
    """The limit of a group less what it uses, without the cached files that the system gives back at need."""
    found = []
    for limit_file, usage_file, cached in (
        ("memory.max", "memory.current", "inactive_file"),  # version 2
        ("memory.high", "memory.current", "inactive_file"),  # beyond it, the system slows the group down
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, usage = (_number(_text(folder / name)) for name in (limit_file, usage_file))
        if limit is not None and usage is not None and limit < _UNLIMITED:
            counts = dict(line.partition(" ")[::2] for line in _text(folder / "memory.stat").splitlines())
            found.append(max(0, limit - usage + (_number(counts.get(cached, "")) or 0)))
    return min(found, default=None)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:  # there is no such file, or it may not be read
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() else None  # not for `max`


# ---- Cores ----
# The processor cores that this process may use: fewer than the machine has in a container or under `taskset`.


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

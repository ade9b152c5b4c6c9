"""The memory that this process may still take: less than the machine has in a container with a limit."""

from pathlib import Path

import psutil

from .control_groups import GROUPS, OWN_GROUPS, group_folders

_UNLIMITED = 2**60  # version 1 writes no limit as the largest number of pages


def available_memory() -> int:
    """The memory in bytes that can be taken without swapping, by the machine and the limits of the control groups."""
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
    for limit_file, usage_file, cached in (
        ("memory.max", "memory.current", "inactive_file"),  # version 2
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            limit, usage = (int((folder / name).read_text(encoding="ascii")) for name in (limit_file, usage_file))
            counts = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
        except (OSError, ValueError):  # there is no such file; `max`
            continue
        if limit < _UNLIMITED:
            return max(0, limit - usage + int(counts.get(cached, 0)))
    return None

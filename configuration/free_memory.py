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

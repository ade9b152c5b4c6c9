"""The control groups of this process, by which Linux limits the processor time and the memory of a container."""

from pathlib import Path, PurePosixPath

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

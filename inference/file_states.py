"""Whether files are as they were: the size and the time of modification of each. This module needs no torch."""

from collections.abc import Iterable
from pathlib import Path

from .image_files import images_in

# By the path of a file in its folder: its size in bytes, and its time of modification in nanoseconds.
FileStates = dict[str, tuple[int, int]]


def states_of(folder: Path, files: Iterable[Path]) -> FileStates:
    """The states of files of a folder, in their order."""
    states = {}
    for file in files:
        facts = file.stat()
        states[str(file.relative_to(folder))] = facts.st_size, facts.st_mtime_ns
    return states


def image_states(folder: Path) -> FileStates:
    """The states of the images of a folder and its subfolders, in the order of their paths."""
    return states_of(folder, images_in(folder))


def model_states(model: str | Path) -> FileStates:
    """The states of the files in a model's folder, not in folders below; none for a model on the Hub."""
    folder = Path(model)
    return states_of(folder, sorted(filter(Path.is_file, folder.iterdir()))) if folder.is_dir() else {}

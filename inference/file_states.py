"""Whether files are as they were: the size and the time of modification of each. This module needs no torch."""

from pathlib import Path

from ..configuration.identity import state_of
from .image_files import image_entries

# By the path of a file in its folder: its size in bytes, and its time of modification in nanoseconds.
FileStates = dict[str, tuple[int, int]]


def image_states(folder: Path) -> FileStates:
    """The states of the images of a folder and its subfolders, in the order of their paths."""
    return {name: state_of(entry.stat()) for name, entry in image_entries(folder)}


def model_states(model: str | Path) -> FileStates:
    """The states of the files in a model's folder, not in folders below; none for a model on the Hub."""
    folder = Path(model)
    files = sorted(filter(Path.is_file, folder.iterdir())) if folder.is_dir() else []
    return {file.name: state_of(file.stat()) for file in files}

"""The image files of a folder, found by their endings."""

import os
from collections.abc import Iterator
from pathlib import Path

import PIL.Image

from ..configuration.errors import CorpusError
from ..processing.images import FORMATS


def walk_images(folder: Path) -> Iterator[Path]:
    """The images of a folder and its subfolders, in the order of their paths.

    The names of one folder at a time are in memory. Links to files are followed, links to folders are not.
    """
    return (folder / name for name, _ in image_entries(folder))


def image_entries(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The images of `walk_images`, each as its path in the folder and its entry there, which knows its state."""
    suffixes = {suffix for suffix, name in PIL.Image.registered_extensions().items() if name in FORMATS}
    return _walk(folder, "", suffixes)


def images_in(folder: Path) -> list[Path]:
    """The images of `walk_images` as a list."""
    return list(walk_images(folder))


def utf8_name(path: Path, folder: Path) -> str:
    """The name of an image in a folder, as a column of text can hold it.

    Raises:
        CorpusError: for a name that is not UTF-8.
    """
    name = path.relative_to(folder).as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        raise CorpusError(f"{path}: its name is not UTF-8, as in a column of text it must be; rename it") from None
    return name


def _walk(folder: Path, inside: str, suffixes: set[str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    # Strings: a Path for each of a million files takes longer than everything else here.
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(folder / entry.name, f"{inside}{entry.name}{os.sep}", suffixes)
        elif os.path.splitext(entry.name)[1].lower() in suffixes and entry.is_file():
            yield f"{inside}{entry.name}", entry

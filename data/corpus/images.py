"""The images of corpora, in cells {bytes, path}, and the paths of files that data name."""

from pathlib import Path
from typing import Any

import fsspec
import PIL.Image

from ...processing.images import open_image, regular_file
from ...utils.errors import CorpusError, ImageError


def read_image(value: Any, place: str, *, draft: int | None = None) -> PIL.Image.Image:
    """Returns the upright RGB image in a cell {bytes, path} of a `datasets.Image` column that is not decoded. `place`
    is its name in errors, and `draft` is as in `open_image`."""
    try:
        return open_image(image_source(value), draft=draft)
    except ImageError as error:
        raise CorpusError(f"{place}: {error}") from error


def image_bytes(value: Any, place: str) -> bytes:
    """Returns the encoded image in such a cell."""
    try:
        source = image_source(value)
        return source if isinstance(source, bytes) else regular_file(source).read_bytes()
    except (ImageError, OSError) as error:
        raise CorpusError(f"{place}: {error}") from error


def stays_inside(name: str) -> bool:
    """Returns whether a file name from data stays in its folder. Links in the folder are allowed."""
    path = Path(name)
    return not path.anchor and ".." not in path.parts


def path_inside(folder: str | Path, name: str, place: str) -> Path:
    """Returns the absolute path of a file whose name comes from data."""
    if not stays_inside(name):
        raise CorpusError(f"{place}: {name!r} leaves the folder {folder}; name a file in it, without '..'")
    return Path(folder).absolute() / name


def image_source(value: Any) -> str | bytes:
    """Returns the bytes of the image in such a cell, downloaded from a remote address, or the path of a local file."""
    if value is None or (value["bytes"] is None and value["path"] is None):
        raise ImageError("no image")
    if value["bytes"] is not None or "://" not in value["path"]:
        return value["path"] if value["bytes"] is None else value["bytes"]
    try:
        with fsspec.open(value["path"]) as file:
            return file.read()
    except Exception as error:  # file system libraries raise unrelated types for an address
        raise ImageError(f"{value['path']}: {error}") from error

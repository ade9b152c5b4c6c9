"""The image files that the server sends: opened without leaving the folder, and made small for the page."""

import os
import stat
from collections import OrderedDict
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import BinaryIO

import PIL.Image

from ..processing.images import open_image
from .gate import ServingLimits

# Windows has none of the first three, and would read text without the last one.
_FLAGS = os.O_RDONLY
for _name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
    _FLAGS |= getattr(os, _name, 0)


def leads_out(path: Path, folder: Path) -> bool:
    """Whether a file, after all symbolic links are followed, lies outside of a folder."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def open_inside(path: Path, folder: Path) -> BinaryIO:
    """Opens a regular file of a folder for reading.

    Raises:
        FileNotFoundError: when it does not exist, leads out of the folder by a symbolic link, or is no regular file.
    """
    if leads_out(path, folder):
        raise FileNotFoundError(f"{path.name} leads out of the folder")
    # Not a pipe, which would wait for a writer, and no link that was made since.
    descriptor = os.open(os.path.realpath(path), _FLAGS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(f"{path.name} is not a file")
    return os.fdopen(descriptor, "rb")


def version_of(file: BinaryIO) -> str:
    """What changes when a file changes, in the form of an HTTP entity tag."""
    facts = os.fstat(file.fileno())
    return f'"{facts.st_mtime_ns:x}-{facts.st_size:x}"'


def content_type(path: Path) -> str:
    """The media type of an image file, by its suffix."""
    name = PIL.Image.registered_extensions().get(path.suffix.lower(), "")
    return PIL.Image.MIME.get(name, "application/octet-stream")


class Thumbnails:
    """Small WebP images of files; the latest ones are kept in memory.

    Args:
        limits: the size of a thumbnail, and the memory for those that are kept.
    """

    def __init__(self, limits: ServingLimits) -> None:
        self._limits = limits
        self._kept: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def kept(self, image_id: str, version: str) -> bytes | None:
        """The thumbnail of a version of an image, if it is kept."""
        with self._lock:
            if (thumbnail := self._kept.get((image_id, version))) is not None:
                self._kept.move_to_end((image_id, version))
            return thumbnail

    def make(self, image_id: str, version: str, file: BinaryIO) -> bytes:
        """Makes the thumbnail of an image, and keeps it.

        Raises:
            ImageError: when the image cannot be read.
        """
        image = open_image(file.read())
        image.thumbnail((self._limits.thumbnail_pixels,) * 2, reducing_gap=2.0)
        written = BytesIO()
        image.save(written, "WEBP", quality=80, method=2)
        thumbnail = written.getvalue()
        with self._lock:
            self._bytes += len(thumbnail) - len(self._kept.pop((image_id, version), b""))
            self._kept[image_id, version] = thumbnail
            while self._bytes > self._limits.thumbnail_bytes and len(self._kept) > 1:
                self._bytes -= len(self._kept.popitem(last=False)[1])
        return thumbnail

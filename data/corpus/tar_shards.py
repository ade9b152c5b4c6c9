"""Tar shards in WebDataset's layout: members whose names are equal up to the first dot are one sample.

    cats/17.jpg    the image; or .jpeg, .png, .webp
    cats/17.json   {"captions": {"en": ["a cat"], "de": "eine Katze"}} or {"caption": "a cat"} in the caller's language
    cats/17.txt    a caption in the caller's language, if there is no json with one

Unlike `datasets`, this reader keeps languages that occur after the first five samples, and refuses truncated files.
"""

import re
import tarfile
import unicodedata
import zlib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any, Self

from datasets import Features, Image, Value
from datasets.utils.file_utils import xopen

from ...utils.errors import CorpusError
from .text_files import MAX_BYTES, files_matching

IMAGES = ("jpg", "jpeg", "png", "webp")
MAX_IMAGE_BYTES = 1 << 28  # larger than a barely compressed image with the maximum number of pixels
# The texts are read by the rule for columns; errors name the archive (`__url__`) and the sample.
FEATURES = Features({"image": Image()} | dict.fromkeys(("image_id", "__url__", "json", "txt"), Value("string")))

_MAX_HEADER_BYTES = 1 << 20
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


def files_named(source: str, suffix: str) -> list[str]:
    """Returns the files in a folder, a file or URL, or a pattern (`train-{000..099}.tar`, `*.tar`); empty for
    others."""
    if not source.endswith(suffix):
        return sorted(map(str, Path(source).glob(f"*{suffix}"))) if Path(source).is_dir() else []
    if "*" in source:
        if not (files := files_matching(source)):
            raise FileNotFoundError(source)
        return [str(file) for file in files]
    if (match := _RANGE.search(source)) is None:
        return [source]
    width, numbers = len(match[1]), range(int(match[1]), int(match[2]) + 1)
    before, after = source[: match.start()], source[match.end() :]
    return [file for number in numbers for file in files_named(f"{before}{number:0{width}}{after}", suffix)]


def tar_rows(shards: list[str]) -> Iterator[dict[str, Any]]:
    """Yields the samples as `image`, `image_id` (the common name of the members), `__url__`, `json` and `txt`."""
    for shard in shards:
        for name, fields in tar_samples(shard):
            try:
                texts = {ending: fields[ending].decode() if ending in fields else None for ending in ("json", "txt")}
            except UnicodeDecodeError as error:
                raise CorpusError(f"{shard} {name}: {error}") from error
            encoded = next((fields[ending] for ending in IMAGES if ending in fields), None)
            # Without a path: `datasets` would prefer a file of that name in the current folder to the bytes.
            image = None if encoded is None else {"bytes": encoded, "path": None}
            yield {"image": image, "image_id": name, "__url__": shard} | texts


def tar_samples(shard: str) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yields (name, content by ending) of adjacent members that share their name."""
    # A Mac may compose the letters in the name of an image differently from those of its caption.
    for _, members in groupby(_members(shard), lambda member: unicodedata.normalize("NFC", member[0])):
        name, fields = "", dict[str, bytes]()
        for own, ending, content in members:
            name = name or own
            if ending in fields:
                raise CorpusError(f"{shard} {name}: {ending} is given twice")
            fields[ending] = content
        yield name, fields


def opened(address: str) -> Any:
    """Opens a file or an address as `datasets` does: it retries a remote one if the connection breaks."""
    try:
        return xopen(address, "rb")
    except ValueError as error:  # for a protocol that fsspec does not know
        raise CorpusError(f"{address}: {error}") from error


def _members(shard: str) -> Iterator[tuple[str, str, bytes]]:
    """Yields (path up to the first dot of its name, ending in lower case, content) of the images and captions."""
    if (local := Path(shard)).exists() and not local.is_file():  # opening a pipe would wait
        raise CorpusError(f"{shard}: not a file")
    try:
        with opened(shard) as file, tarfile.open(fileobj=file, mode="r|*", tarinfo=_Member) as tar:
            while (member := tar.next()) is not None:
                path = PurePosixPath(member.name)
                stem, _, ending = path.name.partition(".")
                ending = ending.lower()
                is_hidden = path.name.startswith((".", "__"))
                if member.isreg() and not is_hidden and ending in (*IMAGES, "json", "txt"):
                    member.name.encode()  # a text column cannot hold any other name
                    most = MAX_IMAGE_BYTES if ending in IMAGES else MAX_BYTES
                    if member.size > most:  # a small archive can decompress to more than fits in memory
                        raise CorpusError(f"{shard} {path}: {member.size:,} bytes, where {most:,} are allowed")
                    yield str(path.parent / stem), ending, tar.extractfile(member).read()  # type: ignore[union-attr]
                tar.members.clear()  # type: ignore[attr-defined]  # otherwise the archive remembers all of them
    except UnicodeEncodeError as error:
        raise CorpusError(f"{shard}: the name {error.object!r} is not UTF-8; pack the archive again") from error
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise CorpusError(f"{shard}: {error}") from error


class _Member(tarfile.TarInfo):
    """A header. `tarfile` would read a file that is truncated between two members as complete, and would hold headers
    of any size with the name of the next member in memory."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except (tarfile.EmptyHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]
            raise tarfile.ReadError("the archive was cut off: it has no end mark") from error

    @classmethod
    def frombuf(cls, *arguments: Any) -> Self:
        header = super().frombuf(*arguments)
        if header.type not in tarfile.REGULAR_TYPES and header.size > _MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {header.size:,} bytes, where {_MAX_HEADER_BYTES:,} are allowed")
        return header

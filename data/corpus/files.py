"""Reads text files line by line, plain or compressed, JSON, and tar shards; none of them can exhaust the memory.

Lines end at line feeds alone: the other characters that Unicode defines as line ends occur in texts. In tar shards,
WebDataset's layout, members whose names are equal up to the first dot are one sample:

    cats/17.jpg    the image; or .jpeg, .png, .webp
    cats/17.json   {"captions": {"en": ["a cat"], "de": "eine Katze"}} or {"caption": "a cat"} in the caller's language
    cats/17.txt    a caption in the caller's language, unless a json has one

Unlike `datasets`, this reader keeps languages that occur after the first five samples, and refuses truncated files.
"""

import bz2
import gzip
import io
import json
import lzma
import re
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import IO, Any, Self

import pyarrow as pa
from datasets import Features, Image, Value
from datasets.utils.file_utils import xopen

from ...utils.errors import CorpusError
from ...utils.files import wrong_encoding
from .corpus import PLACE

# Maximum size of a line, or of a text in an archive: a small compressed file could otherwise exhaust the memory.
MAX_BYTES = 1 << 25
_MAX_DEPTH = 32  # maximum depth of JSON: deeper values exhaust Python's stack, and later Arrow's
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)  # raised for damaged compressed files
TMX = (".tmx", ".tmx.gz")
NO_TMX = "TMX is not read; export it as a tab-separated table (.tsv) whose header has the languages, such as en and de"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


# ---- Lines ----


def open_plain(file: Path) -> IO[bytes]:
    suffix = file.suffix.lower()
    if suffix == ".zst":
        return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(file), "rb"), "zstd"))
    opened: Any = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(suffix, open)
    return opened(file, "rb")


def read_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yields (line number from 1, text) of the lines that are not blank."""
    return ((number, text) for number, text in numbered_lines(file) if text.strip())


def read_texts(file: Path) -> list[str]:
    texts = []
    for number, text in numbered_lines(file):
        if not text.strip():
            raise CorpusError(f"{file} line {number}: the line is empty")
        texts.append(text)
    return texts


def numbered_lines(file: Path, open_file: Callable[[Path], IO[bytes]] = open_plain) -> Iterator[tuple[int, str]]:
    """Yields (number from 1, text) of every line of a file, including blank ones; `open_file` opens it."""
    number = 0
    try:
        with open_file(file) as stream:
            for number, line in enumerate(iter(partial(stream.readline, MAX_BYTES), b""), 1):
                if len(line) == MAX_BYTES:
                    raise CorpusError(f"{file} line {number}: more than the {MAX_BYTES:,} bytes that a line may have")
                if number == 1 and b"\0" in line:
                    raise CorpusError(f"{file} line 1: not UTF-8, but UTF-16: save the file as UTF-8")
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{file} line {number}: {wrong_encoding(error)}") from error
    except DAMAGED as error:
        raise CorpusError(f"{file} after line {number}: {error}") from error


# ---- JSON ----


def read_json_lines(file: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (its place for messages, such as `x.jsonl line 3`; the object) of each line."""
    for line, text in read_lines(Path(file)):
        yield (place := f"{file} line {line}"), parse_json(text, f"{place}: ", dict)


def read_json(file: Path, expected: type | tuple[type, ...] = object) -> Any:
    try:
        with open_plain(file) as stream:
            text = stream.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{file}: {wrong_encoding(error)}") from error
    except DAMAGED as error:
        raise CorpusError(f"{file}: {error}") from error
    return parse_json(text, f"{file}: ", expected)


def parse_json(text: str, place: str = "", expected: type | tuple[type, ...] = object) -> Any:
    """Returns the value of a JSON text; with `expected=dict`, it must be an object."""
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats)
        if text.count("[") + text.count("{") > _MAX_DEPTH and _depth(value) > _MAX_DEPTH:
            raise RecursionError
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise CorpusError(f"{place}JSON that is nested more than {_MAX_DEPTH} deep") from None
    except UnicodeEncodeError as error:
        raise CorpusError(f"{place}{error.object[error.start]!r} is half of a surrogate pair") from error
    except ValueError as error:
        raise CorpusError(f"{place}unusable JSON: {error}") from error
    if not isinstance(value, expected):
        raise CorpusError(f"{place}a JSON object is expected, such as {{…: …}}")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is given twice")
    return record


def _depth(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if parts is None else 1 + max(map(_depth, parts), default=0)


# ---- Files ----


def files_matching(source: str | Path) -> list[Path]:
    """Returns the files in a folder, or the files that a path or a pattern such as `wit/*.tsv.gz` names, sorted.
    Hidden ones, such as macOS' `._a.tsv`, must be named."""
    path = Path(source)
    found = path.iterdir() if path.is_dir() else Path(path.anchor).glob(str(path.relative_to(path.anchor)))
    return sorted(each for each in found if each == path or not each.name.startswith("."))


def kind_of(file: str | Path) -> str:
    """Returns the ending of a name in lower case, without a compression's: `.tsv` for `a.TSV.gz`."""
    path = Path(file)
    return (Path(path.stem) if path.suffix.lower() in COMPRESSED else path).suffix.lower()


# ---- Tar shards ----

IMAGES = ("jpg", "jpeg", "png", "webp")
MAX_IMAGE_BYTES = 1 << 28  # larger than a barely compressed image with the maximum number of pixels
# The texts are read by the rule for columns; errors name the archive and the sample.
TAR_FEATURES = Features({"image": Image()} | dict.fromkeys(("image_id", PLACE, "json", "txt"), Value("string")))

_MAX_HEADER_BYTES = 1 << 20
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


def files_named(source: str, suffix: str) -> list[str]:
    """Returns the files in a folder, a file or URL, or a pattern (`train-{000..099}.tar`, `*.tar`); empty for
    others."""
    if not source.endswith(suffix):
        return [str(file) for file in files_matching(source) if file.suffix == suffix] if Path(source).is_dir() else []
    if "*" in source:
        return [str(file) for file in files_matching(source)]
    if (match := _RANGE.search(source)) is None:
        return [source]
    width, numbers = len(match[1]), range(int(match[1]), int(match[2]) + 1)
    before, after = source[: match.start()], source[match.end() :]
    return [file for number in numbers for file in files_named(f"{before}{number:0{width}}{after}", suffix)]


def tar_rows(shards: list[str]) -> Iterator[dict[str, Any]]:
    """Yields the samples as `image`, `image_id` (the common name of the members), `PLACE`, `json` and `txt`."""
    for shard in shards:
        for name, fields in tar_samples(shard):
            try:
                texts = {ending: fields[ending].decode() if ending in fields else None for ending in ("json", "txt")}
            except UnicodeDecodeError as error:
                raise CorpusError(f"{shard} {name}: {error}") from error
            encoded = next((fields[ending] for ending in IMAGES if ending in fields), None)
            # Without a path: `datasets` would prefer a file of that name in the current folder to the bytes.
            image = None if encoded is None else {"bytes": encoded, "path": None}
            yield {"image": image, "image_id": name, PLACE: f"{shard} {name}"} | texts


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

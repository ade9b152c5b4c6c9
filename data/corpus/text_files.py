"""Reads text files line by line, plain or compressed. Lines end at line feeds alone: the other characters that Unicode
defines as line ends occur in texts."""

import bz2
import gzip
import io
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from ...utils.errors import CorpusError, wrong_encoding

# Maximum size of a line, or of a text in an archive: a small compressed file could otherwise exhaust the memory.
MAX_BYTES = 1 << 25
_MAX_DEPTH = 32  # maximum depth of JSON: deeper values exhaust Python's stack, and later Arrow's
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)  # raised for damaged compressed files
TMX = (".tmx", ".tmx.gz")
NO_TMX = "TMX is not read; export it as a tab-separated table (.tsv) whose header has the languages, such as en and de"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


# ---- Lines ----


def read_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yields (line number from 1, text) of the lines that are not blank."""
    return ((number, text) for number, text in numbered_lines(partial(open_plain, file), file) if text.strip())


def read_texts(file: Path) -> list[str]:
    texts = []
    for number, text in numbered_lines(partial(open_plain, file), file):
        if not text.strip():
            raise CorpusError(f"{file} line {number}: the line is empty")
        texts.append(text)
    return texts


def numbered_lines(
    open_stream: Callable[[], AbstractContextManager[IO[bytes]]], file: str | Path, first: int = 1
) -> Iterator[tuple[int, str]]:
    """Yields (number, text) of every line that `open_stream` opens, including blank ones; numbers begin at `first`."""
    number = first - 1
    try:
        with open_stream() as stream:
            for number, line in enumerate(iter(partial(stream.readline, MAX_BYTES), b""), first):
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


def read_json_lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, text in read_lines(file):
        yield line, parse_object(text, f"{file} line {line}: ")


def read_json(file: Path) -> Any:
    try:
        with open_plain(file) as stream:
            text = stream.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{file}: {wrong_encoding(error)}") from error
    except DAMAGED as error:
        raise CorpusError(f"{file}: {error}") from error
    return parse_json(text, f"{file}: ")


def parse_file(file: str | Path) -> dict[str, Any]:
    return _object(read_json(Path(file)), f"{file}: ")


def parse_object(text: str, place: str = "") -> dict[str, Any]:
    return _object(parse_json(text, place), place)


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CorpusError(f"{place}a JSON object is expected, such as {{…: …}}")
    return value


def parse_json(text: str, place: str = "") -> Any:
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
    """Returns the files in a folder, or the files that a path or a pattern such as `wit/*.tsv.gz` names, sorted."""
    path = Path(source)
    return sorted(path.iterdir() if path.is_dir() else Path(path.anchor).glob(str(path.relative_to(path.anchor))))


def open_plain(file: Path) -> IO[bytes]:
    suffix = file.suffix.lower()
    if suffix == ".zst":
        return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(file), "rb"), "zstd"))
    opened: Any = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(suffix, open)
    return opened(file, "rb")


def kind_of(file: str | Path) -> str:
    """Returns the ending of a name in lower case, without a compression's: `.tsv` for `a.TSV.gz`."""
    path = Path(file)
    return (Path(path.stem) if path.suffix.lower() in COMPRESSED else path).suffix.lower()

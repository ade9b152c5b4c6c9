"""Reads text files line by line, plain or compressed, with errors that name the file and the line.

A line ends at a line feed, with or without a carriage return before it. Other characters that Unicode defines as ends
of lines (form feeds, U+2028) occur inside texts; splitting there would shift all following lines.
"""

import bz2
import gzip
import io
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from datasets import Dataset

from ...utils.errors import BadTextError, CorpusError, wrong_encoding

# Maximum size of a line, or of a text in an archive: a small compressed file could otherwise exhaust the memory.
MAX_BYTES = 1 << 25
_MAX_DEPTH = 32  # of JSON: deeper values exhaust Python's stack, and later Arrow's
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)  # what compressed files raise
TMX = (".tmx", ".tmx.gz")
NO_TMX = "TMX is not read; export it as a tab-separated table (.tsv) whose header has the languages, such as en and de"
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


def read_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yields (line number from 1, text) of the lines that are not blank. A file that ends in `.gz` is decompressed.

    Raises:
        CorpusError: for a file that cannot be read, is not UTF-8, or has a line beyond `MAX_BYTES`.
    """
    return ((number, text) for number, text in _lines(file) if text and not text.isspace())


def read_texts(file: Path) -> list[str]:
    """The texts of a file with one text in every line.

    Raises:
        CorpusError: as in `read_lines`.
        BadTextError: for a blank line; without it, the following texts would belong to other images.
    """
    texts = []
    for number, text in _lines(file):
        if not text or text.isspace():
            raise BadTextError(f"{file} line {number}: the line is empty")
        texts.append(text)
    return texts


def read_json_lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line number, object) of a file of JSON lines.

    Raises:
        CorpusError: as in `read_lines`, and for a line that is not a JSON object.
    """
    for line, text in read_lines(file):
        try:
            yield line, parse_object(text)
        except CorpusError as error:
            raise CorpusError(f"{file} line {line}: {error}") from error


def read_json(file: Path) -> Any:
    """The value that a JSON file holds, of any size. A file that ends in `.gz` is decompressed.

    Raises:
        CorpusError: for a file that cannot be read, is not UTF-8, or holds no JSON; and as `parse_json`.
    """
    try:
        with open_plain(file) as stream:
            return parse_json(stream.read().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise CorpusError(f"{file}: {wrong_encoding(error)}") from error
    except (*DAMAGED, ValueError) as error:
        raise CorpusError(f"{file}: {error}") from error


def line_of(file: Path, lines: list[int], row: int) -> str:
    """What errors call a row: `lines` has the line of each."""
    return f"{file} line {lines[row]}"


def parse_object(text: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        CorpusError: as `parse_json`; and for anything else than an object, and one that gives a name twice, of which
            JSON would keep the last.
    """
    record = parse_json(text, _without_repeats)
    if not isinstance(record, dict):
        raise CorpusError("a JSON object is expected, such as {…: …}")
    return record


def parse_file(file: str | Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        CorpusError: as `parse_object`, and for a file that cannot be read; the message names the file.
    """
    try:
        return parse_object(Path(file).read_text("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise CorpusError(f"{file}: {wrong_encoding(error)}") from error
    except (CorpusError, OSError) as error:
        raise CorpusError(f"{file}: {error}") from error


def parse_json(text: str, make_object: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The value that a JSON text holds.

    Args:
        make_object: what becomes of the names and values of an object; by default a dictionary.

    Raises:
        CorpusError: for what is no JSON, is nested too deeply, or has half of a surrogate pair, which JSON can spell
            (`"\\ud83d"`) and which is no character.
    """
    try:
        value = json.loads(text, object_pairs_hook=make_object)
        if text.count("[") + text.count("{") > _MAX_DEPTH and _depth(value) > _MAX_DEPTH:
            raise RecursionError
        if _HALF_PAIR.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise CorpusError(f"JSON that is nested more than {_MAX_DEPTH} deep") from None
    except UnicodeEncodeError as error:
        raise CorpusError(f"{error.object[error.start]!r} is half of a surrogate pair, and no character") from error
    except ValueError as error:
        raise CorpusError(f"no JSON that can be used: {error}") from error
    return value


def files_matching(source: str | Path) -> list[Path]:
    """What lies in a folder, or what a path or a pattern such as `wit/*.tsv.gz` names, in order; none for a missing
    file."""
    path = Path(source)
    inside = path.iterdir() if path.is_dir() else Path(path.anchor).glob(str(path.relative_to(path.anchor)))
    return sorted(inside)


def open_plain(file: Path) -> IO[bytes]:
    """Opens a file to read its bytes; one that ends as in `COMPRESSED` is decompressed."""
    opened = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": _open_zstd}.get(file.suffix.lower())
    return file.open("rb") if opened is None else opened(file, "rb")  # type: ignore[operator]


def _open_zstd(file: Path, mode: str) -> IO[bytes]:
    return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(file), mode), "zstd"))


def kind_of(file: str | Path) -> str:
    """The ending of a name in small letters, without that of a compression: `.tsv` of `a.TSV.gz`."""
    path = Path(file)
    return (Path(path.stem) if path.suffix.lower() in COMPRESSED else path).suffix.lower()


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    return numbered_lines(partial(open_plain, file), file)


def numbered_lines(
    open_stream: Callable[[], IO[bytes]], file: str | Path, first: int = 1
) -> Iterator[tuple[int, str]]:
    """Yields (number, text) of every line, of blank ones too.

    Args:
        open_stream: opens the text.
        file: what errors call it.
        first: the number of the first line.

    Raises:
        CorpusError: as in `read_lines`.
    """
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


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is given twice")
    return record


def _depth(value: Any) -> int:
    """How many lists and objects stand in each other."""
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, list | dict)]:
        depth += 1
        level = [part for each in level for part in (each.values() if isinstance(each, dict) else each)]
    return depth


# ---- Texts that are not UTF-8, in columns ----


def refuse_broken_texts(dataset: Dataset, place: Callable[[int], str], rows: int) -> None:
    """Parquet files can hold strings that are not UTF-8, which are an error wherever they are first read.

    Args:
        dataset: the dataset.
        place: the name of the row with an index, for the error.
        rows: number of rows that are read together.

    Raises:
        CorpusError: for such a text.
    """
    names = [name for name in dataset.column_names if name not in ("image", "features")]
    texts = dataset.select_columns(names).with_format("arrow")
    for start in range(0, len(texts), rows):
        table = texts[start : start + rows]
        try:
            table.validate(full=True)
        except pa.ArrowInvalid as error:
            cells = ((row, name) for row in range(len(table)) for name in names)
            broken = (f"{place(start + row)}: {name!r}" for row, name in cells if not _is_utf8(table[name][row]))
            raise CorpusError(f"{next(broken, place(start))} holds a text that is not UTF-8") from error


def _is_utf8(cell: pa.Scalar) -> bool:
    try:
        cell.as_py()
    except UnicodeDecodeError:
        return False
    return True

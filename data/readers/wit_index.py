"""Sorts WIT's rows by image, so that all texts of an image can be read together without holding WIT in memory.

Every row is written to one of `PARTS` files by a hash of the image's address, and so are Wikimedia's pixel data, so
that the parts correspond. An index is written to the cache atomically; its name is a digest of its source files and
rules.
"""

import base64
import binascii
import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import astuple, dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datasets.utils import tqdm

from ...utils.errors import BadImageError, CorpusError, LanguageTagError
from ...utils.files import atomic_folder
from ...utils.identity import file_states
from ...utils.languages import normalize_language
from ..corpus.captions import CaptionRules, normalize_captions
from ..corpus.parquet_files import cache_key
from ..corpus.text_files import read_lines
from .task_files import warn_of

PARTS = 64
TEXT_FILES = (".tsv", ".tsv.gz")
PIXEL_FILES = (".csv", ".csv.gz")

COLUMNS = (
    "language",
    "page_url",
    "image_url",
    "page_title",
    "section_title",
    "hierarchical_section_title",
    "caption_reference_description",
    "caption_attribution_description",
    "caption_alt_text_description",
    "mime_type",
    "original_height",
    "original_width",
    "is_main_image",
    "attribution_passes_lang_id",
    "page_changed_recently",
    "context_page_description",
    "context_section_description",
)
_TEXTS = {
    "reference": "caption_reference_description",
    "page": "context_page_description",
    "section": "context_section_description",
    "alt": "caption_alt_text_description",
    "attribution": "caption_attribution_description",
}
_TEXT_SCHEMA = pa.schema({"url": pa.string(), "language": pa.string(), "text": pa.string()})
_PIXEL_SCHEMA = pa.schema({"url": pa.string(), "image": pa.binary()})
_VERSION = 2  # to be raised when a change of this code makes another index from the same files
_SKIPPED = "skipped.json"
_BUFFER = 1 << 20  # number of bytes or characters that are collected for a part before they are written

Row = tuple[Any, ...]  # a row of an index; the address comes first
Lines = Iterator[tuple[str, list[str] | CorpusError]]  # (place, cells or an error) of the lines of a file


@dataclass(frozen=True)
class _Kind:
    """What is sorted.

    Args:
        name: name of the index.
        schema: its columns.
        lines: reads the lines of a file.
        rows: the rows of the index that a line gives.
    """

    name: str
    schema: pa.Schema
    lines: Callable[[Path], Lines]
    rows: Callable[[list[str]], list[Row]]


@dataclass(frozen=True)
class WitRules:
    """Which texts of WIT are captions.

    Args:
        languages: canonical language tags; None for all.
        texts: kinds of texts, keys of `_TEXTS`.
        skip_bad_rows: whether to leave bad rows out with a warning that names them.
    """

    languages: tuple[str, ...] | None
    texts: tuple[str, ...]
    skip_bad_rows: bool

    def __post_init__(self) -> None:
        if unknown := [name for name in self.texts if name not in _TEXTS]:
            raise ValueError(f"WIT has no texts called {', '.join(unknown)}; there are {', '.join(_TEXTS)}")


def index_texts(files: list[Path], rules: WitRules, cache: Path) -> list[Path]:
    """The files of the index of texts (`url`, `language`, `text`), which is made if it is not in the cache.

    Raises:
        CorpusError, LanguageTagError: for a bad row; the message names the file and the line.
    """
    kind = _Kind("texts", _TEXT_SCHEMA, _text_lines, partial(_texts, rules=rules))
    return _index(files, kind, repr(astuple(rules)), rules.skip_bad_rows, cache)


def index_pixels(files: list[Path], skip_bad_rows: bool, cache: Path) -> list[Path]:
    """The files of the index of images (`url`, `image`), which is made if it is not in the cache.

    Raises:
        CorpusError: for a bad row; the message names the file and the line.
    """
    return _index(
        files, _Kind("pixels", _PIXEL_SCHEMA, _pixel_lines, _pixels), repr(skip_bad_rows), skip_bad_rows, cache
    )


def _texts(cells: list[str], rules: WitRules) -> list[Row]:
    """The captions of a line of WIT."""
    row = dict(zip(COLUMNS, cells, strict=True))
    language, url = normalize_language(row["language"]), _address(row["image_url"])
    if rules.languages is not None and language not in rules.languages:
        return []
    texts = [" ".join(row[_TEXTS[name]].split()) for name in rules.texts if _is_caption(row, name)]
    captions = normalize_captions({language: texts}, CaptionRules(at_least=0))
    return [(url, language, caption["text"]) for caption in captions]


def _is_caption(row: dict[str, str], name: str) -> bool:
    foreign = name == "attribution" and row["attribution_passes_lang_id"].lower() != "true"
    return bool(row[_TEXTS[name]].strip()) and not foreign


def _pixels(cells: list[str]) -> list[Row]:
    """The image of a line of Wikimedia's pixel data."""
    if len(cells) != 3:
        raise CorpusError(f"{len(cells)} cells, where pixel data have 3")
    try:
        return [(_address(cells[0]), base64.b64decode(cells[1], validate=True))]
    except binascii.Error as error:
        raise BadImageError(f"the image is not in base64: {error}") from error


def _address(url: str) -> str:
    scheme, separator, rest = url.strip().partition("://")
    if not separator or not rest or scheme not in ("http", "https"):
        raise CorpusError(f"{url!r} is no address of an image")
    return f"https://{rest}"


# --------------------------------------------------------------------------------------------------- sorting by part


def _index(files: list[Path], kind: _Kind, rules: str, skip: bool, cache: Path) -> list[Path]:
    key = cache_key(_VERSION, PARTS, rules, file_states(files))
    folder = cache / f"{kind.name}-{key}"
    if not folder.exists():
        with atomic_folder(folder) as unfinished:
            skipped = _sort(files, kind, skip, unfinished)
            (unfinished / _SKIPPED).write_text(json.dumps(skipped, ensure_ascii=False), "utf-8")
    skipped = json.loads((folder / _SKIPPED).read_text("utf-8"))
    warn_of(f"left out of WIT's {kind.name} what cannot be used", skipped)
    return _parts(folder)


def _sort(files: list[Path], kind: _Kind, skip: bool, folder: Path) -> list[str]:
    """Writes the parts, and returns the errors of the rows that were left out."""
    skipped = []
    with ExitStack() as stack:
        parts = [stack.enter_context(_Part(path, kind.schema)) for path in _parts(folder)]
        for file in tqdm(files, desc=f"Sorting WIT's {kind.name}", unit="file"):
            for place, cells in kind.lines(file):
                try:
                    if isinstance(cells, CorpusError):
                        raise cells
                    for row in kind.rows(cells):
                        parts[_part_of(row[0])].add(row)
                except (CorpusError, LanguageTagError) as error:
                    if not skip:
                        raise type(error)(f"{place}: {error}") from error
                    skipped.append(f"{place}: {error}")
    return skipped


def _parts(folder: Path) -> list[Path]:
    return [folder / f"part-{number:03}.parquet" for number in range(PARTS)]


def _part_of(url: str) -> int:
    return int.from_bytes(blake2b(url.encode(), digest_size=4).digest(), "big") % PARTS


def _text_lines(file: Path) -> Lines:
    """The lines of WIT's files: cells between tabs, quoted as in CSV, under a header."""
    opener = gzip.open if file.suffix == ".gz" else open
    try:
        with opener(file, "rt", encoding="utf-8-sig", newline="") as stream:
            lines = csv.reader(stream, delimiter="\t", strict=True)
            if (header := tuple(next(lines, ()))) != COLUMNS:
                raise CorpusError(f"{file}: expected the columns {', '.join(COLUMNS)}, and found {', '.join(header)}")
            while (cells := _next_cells(lines)) is not None:
                if not isinstance(cells, CorpusError) and len(cells) != len(COLUMNS):
                    cells = CorpusError(f"{len(cells)} cells, where the header has {len(COLUMNS)} columns")
                yield f"{file} line {lines.line_num}", cells
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise CorpusError(f"{file}: {error}") from error


def _next_cells(lines: Any) -> list[str] | CorpusError | None:
    """The cells of the next line of a CSV reader, or an error; None at the end."""
    try:
        return next(lines, None)
    except csv.Error as error:
        return CorpusError(f"not a row of cells between tabs: {error}")


def _pixel_lines(file: Path) -> Lines:
    """The lines of Wikimedia's pixel data: cells between tabs, without quotes or a header."""
    for line, text in read_lines(file):
        yield f"{file} line {line}", text.split("\t")


class _Part:
    """A parquet file that is written while rows are added."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")
        self._schema = schema
        self._rows: list[Row] = []
        self._size = 0

    def add(self, row: Row) -> None:
        self._rows.append(row)
        self._size += sum(map(len, row))
        if self._size > _BUFFER:
            self._write()

    def _write(self) -> None:
        rows = [dict(zip(self._schema.names, row, strict=True)) for row in self._rows]
        self._writer.write_table(pa.Table.from_pylist(rows, schema=self._schema))
        self._rows, self._size = [], 0

    def __enter__(self) -> "_Part":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            if self._rows:
                self._write()
            self._writer.close()
            return
        with suppress(OSError):  # on a full disk, the end of the file cannot be written either
            self._writer.close()

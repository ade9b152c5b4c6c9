"""CSV and TSV files of captions or translations, as spreadsheets and shops write them, and files of translations:
tab-separated tables with a header of language tags, and JSON lines.

Of a spreadsheet's file, the encoding is found by charset-normalizer, the delimiter by the standard library's
`csv.Sniffer`. The first line has the names of the columns, which `columns` reads; images are named relative to the
file.
"""

import csv
import io
import logging
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from charset_normalizer import from_bytes
from datasets import Dataset, Features, IterableDataset, Value

from ...configuration.errors import CorpusError, LanguageTagError
from ...configuration.languages import normalize_language
from .captions import CaptionRules, Place, normalize_rows, shortened
from .columns import NO_NAMES, ColumnNames
from .corpus import CAPTIONS, captions_column, image_id_of
from .images import path_inside
from .text_files import line_of, read_json_lines, read_lines

logger = logging.getLogger(__name__)

TABLES = (".csv", ".tsv")
TRANSLATION_FILES = (".tsv", ".jsonl")
METADATA = "metadata.jsonl"
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_PART = 10_000  # number of rows that are held as Python objects
DELIMITERS = ",;\t|"
_IMAGE_NAMES = ("image", "file_name", "filename", "photo", "path")
_SAMPLE = 1 << 16  # characters from which the delimiter is found
_ENCODED = 1 << 20  # bytes from which the encoding is found


def is_table(source: str | Path, *endings: str) -> bool:
    """Whether a source is a file that ends as tables do."""
    return Path(source).suffix.lower() in endings and Path(source).is_file()


def table_of(file: Path, columns: ColumnNames = NO_NAMES) -> tuple[Dataset, Place]:
    """The rows of a CSV or TSV file as columns of texts, and what errors call them.

    A column of names of image files (`columns.image`, or `image`, `file_name`, `filename`, `photo` or `path`) becomes
    the column `image` of paths, and their `image_id`, unless there is one. Columns that are empty in every row are
    left out.

    Args:
        file: the file.
        columns: what its columns are called.

    Raises:
        CorpusError: for a file that cannot be read or has no rows, a header with an empty or repeated name, and a row
            of another length; the message names the line.
    """
    text = decoded(file)
    delimiter = delimiter_of(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    lines, rows = [], []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if not header:
                header = _header(cells, file)
                continue
            if len(cells) != len(header):
                raise CorpusError(
                    f"{file} line {reader.line_num}: {len(cells)} cells, where the header has {len(header)} columns"
                )
            if delimiter == "\t" and any("\t" in cell and "\n" in cell for cell in cells):
                raise CorpusError(
                    f"{file} line {reader.line_num}: a cell has tabs and lines in it, since a quotation mark opens it "
                    "that another one closes lines later; write a mark that is part of the text as two, in a cell in "
                    "quotation marks"
                )
            lines.append(reader.line_num)
            rows.append([cell.strip() or None for cell in cells])
    except csv.Error as error:
        raise CorpusError(f"{file} line {reader.line_num}: {error}") from error
    if not rows:
        raise CorpusError(f"{file}: there are no rows below the header")
    columns.check(header)
    table = {name: list(cells) for name, cells in zip(header, zip(*rows, strict=True), strict=True)}
    place = partial(line_of, file, lines)
    image = columns.image or next((name for name in header if name.lower() in _IMAGE_NAMES), None)
    if image is not None:
        _read_images(table, image, file, place)
    return Dataset.from_dict({name: cells for name, cells in table.items() if any(cells)}), place


def decoded(file: Path) -> str:
    """The text of a file, in the encoding that it is most likely in; UTF-8 wherever it can be.

    Raises:
        CorpusError: for a file that cannot be read, or whose encoding cannot be found.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise CorpusError(f"{file}: {error}") from error
    if not content.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            pass
    best = from_bytes(content[:_ENCODED]).best()
    if best is None:
        raise CorpusError(f"{file}: its encoding cannot be found: save it as UTF-8")
    try:
        text = content.decode(best.encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{file}: it looks like {best.encoding}, and is not: save it as UTF-8 ({error})") from error
    shown = next((line.strip() for line in text.splitlines() if not line.isascii()), "")
    logger.warning(
        "%s is not UTF-8, and is read as %s, so that it says %.60r; save it as UTF-8 if that is wrong",
        *(file, best.encoding, shown),
    )
    return text


def delimiter_of(text: str) -> str:
    """The character between the cells of a table: one that its first line has."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    there = [each for each in DELIMITERS if each in first]
    if len(there) < 2:
        return there[0] if there else ","
    try:
        return csv.Sniffer().sniff(text[:_SAMPLE], "".join(there)).delimiter
    except csv.Error:  # cells of one row have several, and no count is the same in all rows
        return max(there, key=first.count)


def _header(cells: list[str], file: Path) -> list[str]:
    names = [cell.strip() for cell in cells]
    for number, name in enumerate(names, 1):
        if not name:
            raise CorpusError(f"{file} line 1: column {number} of the header has no name")
        if names.count(name) > 1:
            raise CorpusError(f"{file} line 1: the column {name!r} is there twice")
    return names


def _read_images(table: dict[str, list[str | None]], image: str, file: Path, place: Place) -> None:
    """Makes paths of the names of images, and names the images by them."""
    names = table.pop(image)
    paths: list[str | None] = []
    for row, name in enumerate(names):
        if name is None:
            raise CorpusError(f"{place(row)}: no image in the column {image!r}")
        paths.append(str(path_inside(file.parent, name.replace("\\", "/"), place(row))))
    table["image"] = paths
    table.setdefault("image_id", names)


# ---- Files of translations ----


def translation_file(file: Path, rules: CaptionRules, streaming: bool) -> Dataset | IterableDataset:
    """The rows of a translation file, with normalized captions.

    Raises:
        CorpusError, LanguageTagError: for a row that cannot be used, with the file and the line; for a stream, while
            it is read.
    """
    if not file.is_file():
        raise CorpusError(f"{file}: no such file")
    first = next(_records(file), None)
    if first is None:
        raise CorpusError(f"{file}: there are no rows")
    with_ids = "image_id" in first[1]
    features = Features(({"image_id": Value("string")} if with_ids else {}) | {"captions": CAPTIONS})
    read = partial(_translations, file, replace(rules, languages=None), with_ids)
    if streaming:
        return IterableDataset.from_generator(read, features=features)
    rows, parts = read(), []
    while part := list(islice(rows, _PART)):  # stored compactly in Arrow before more lines are read
        parts.append(pa.Table.from_pylist(part, features.arrow_schema))  # a third of the time of `Dataset.from_list`
    if not parts:
        raise CorpusError(f"{file}: no row has two texts")
    return Dataset(pa.concat_tables(parts))


def _translations(file: Path, rules: CaptionRules, with_ids: bool) -> Iterator[dict[str, Any]]:
    """The rows of a translation corpus."""
    lines: list[int] = []
    image_ids: list[Any] = []

    def texts() -> Iterator[dict[str, Any]]:
        for line, record in _records(file):
            lines.append(line)
            image_ids.append(record.pop("image_id", None))
            yield record

    place = partial(line_of, file, lines)
    for row, captions in enumerate(normalize_rows(texts(), rules, place)):
        if not with_ids and image_ids[row] is not None:
            raise CorpusError(f"{place(row)}: an image_id, which the first row lacks; give one to all rows or to none")
        named = {"image_id": image_id_of(image_ids[row], place(row))} if with_ids else {}
        if captions:
            yield {"captions": captions} | named


def _records(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, {language: text, or None for an empty one}) of a translation file."""
    for line, record in tsv_records(file) if file.suffix == ".tsv" else read_json_lines(file):
        yield line, {name: None if text in ("", []) else text for name, text in record.items()}


def tsv_records(file: Path, key: str = "image_id") -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, {column: cell}) of a tab-separated file with a header. Cells are not quoted.

    Args:
        file: the file.
        key: the name that a column may have beside those of languages.

    Raises:
        CorpusError, LanguageTagError: for a header or a line that cannot be used.
    """
    lines = read_lines(file)
    header = next(lines, (1, "en"))[1].split("\t")
    if len(header) == 1 and (other := next((each for each in ";,|" if each in header[0]), "")):
        raise CorpusError(f"{file} line 1: cells are divided by {other!r}: tabs are needed between them")
    _check_header(header, key, f"{file} line 1")
    for line, text in lines:
        cells = text.split("\t")
        if len(cells) < len(header):
            missing = header[len(cells)]
            tabs = ": tabs are needed between cells" if any(each in text for each in ";,|") else ""
            raise CorpusError(
                f"{file} line {line}: {len(cells)} of {len(header)} cells; column {missing!r} is missing{tabs}"
            )
        if len(cells) > len(header):
            raise CorpusError(f"{file} line {line}: {len(cells)} cells, where the header has {len(header)} columns")
        yield line, dict(zip(header, cells, strict=True))


def _check_header(header: list[str], key: str, place: str) -> None:
    """Every column is called by its language, or as the key."""
    spellings: dict[str, str] = {}
    for number, name in enumerate(header, 1):
        try:
            language = name if name == key else normalize_language(name)
        except LanguageTagError as error:
            raise LanguageTagError(f"{place}: column {number} of the header: {error}") from None
        if language in spellings:
            raise CorpusError(f"{place}: columns {spellings[language]!r} and {name!r} are both {language!r}")
        spellings[language] = name


# ---- Folders of images with a metadata.jsonl ----


def image_folder(folder: Path, rules: CaptionRules, named: ColumnNames) -> tuple[Dataset, Place]:
    """The images named in the metadata.jsonl of a folder, with normalized captions, and the names of rows."""
    file = folder / METADATA
    numbered = list(read_json_lines(file))
    if not numbered:
        raise CorpusError(f"{file}: there are no rows")
    records = [record for _, record in numbered]
    place = partial(line_of, file, [line for line, _ in numbered])
    if named != NO_NAMES:
        records = [_renamed(record, named, place(row)) for row, record in enumerate(records)]
    for row, record in enumerate(records):
        if not isinstance(name := record.get("file_name"), str) or not name.strip():
            raise CorpusError(f"{place(row)}: no file_name")
    names = list(dict.fromkeys(name for record in records for name in record))
    column = captions_column(names)
    columns = {name: [record.get(name) for record in records] for name in names if name not in ("file_name", column)}
    places = [place(row) for row in range(len(records))]
    columns["image"] = [
        str(path_inside(folder, record["file_name"], where)) for record, where in zip(records, places, strict=True)
    ]
    columns["image_id"] = [
        image_id_of(record.get("image_id", record["file_name"]), where)
        for record, where in zip(records, places, strict=True)
    ]
    if "features" in columns:
        columns["features"] = [_numbers(cell, where) for cell, where in zip(columns["features"], places, strict=True)]
    every_language = replace(rules, languages=None)
    columns["captions"] = list(normalize_rows((record.get(column) for record in records), every_language, place))
    return _in_columns(columns, place), place


def _renamed(record: dict[str, Any], named: ColumnNames, place: str) -> dict[str, Any]:
    """A line of a metadata.jsonl under the names of a corpus."""
    try:
        named.check([*record])
    except CorpusError as error:
        raise CorpusError(f"{place}: {error}") from error
    record = dict(record)
    if named.image is not None:
        record["file_name"] = record.pop(named.image)
    if isinstance(named.caption, Mapping):
        record["captions"] = {tag: record.pop(name) for tag, name in named.caption.items()}
    elif named.caption is not None or named.language is not None:
        column = named.caption or captions_column([*record])
        captions = record.pop(column)
        record["captions"] = captions if named.language is None else {record.pop(named.language): captions}
    return record


def _in_columns(columns: dict[str, list[Any]], place: Place) -> Dataset:
    try:
        return Dataset.from_dict(columns)
    except (pa.ArrowException, OverflowError) as error:
        for name, cells in columns.items():
            if not _fit_together(cells):
                row = bisect_left(range(len(cells)), True, key=lambda last: not _fit_together(cells[: last + 1]))
                raise CorpusError(
                    f"{place(row)}: {name!r} is {shortened(cells[row])}, which no column can hold with the values "
                    f"before it: {error}"
                ) from error
        raise


def _fit_together(cells: list[Any]) -> bool:
    try:
        Dataset.from_dict({"cells": cells})
    except (pa.ArrowException, OverflowError):
        return False
    return True


def _numbers(value: Any, place: str) -> list[float] | None:
    """The features of a line."""
    if value is None:
        return None
    if not isinstance(value, list) or not value or any(type(number) not in (int, float) for number in value):
        raise CorpusError(f"{place}: 'features' should be a list of numbers, and is {shortened(value)}")
    if any(not abs(number) <= _FLOAT32_MAX for number in value):  # NaN, too
        raise CorpusError(f"{place}: 'features' has a number that is not finite in float32: {shortened(value)}")
    return [float(number) for number in value]

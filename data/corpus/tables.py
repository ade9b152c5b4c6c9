"""Files of captions and of translations: CSV and TSV (`table_rows`), JSON lines and JSON.

The rule in `columns` finds their columns. Images are named relative to the file.
"""

import logging
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from datasets import Dataset, Features, IterableDataset, Value

from ...utils.errors import CorpusError, LanguageTagError
from ...utils.languages import normalize_language
from .captions import CaptionRules, Place, RowCount, normalize_rows, shortened
from .columns import (
    CAPTION_COLUMNS,
    DEFAULT_COLUMNS,
    CaptionColumns,
    ColumnNames,
    find_captions,
    translation_columns,
)
from .corpus import CAPTIONS, DOWNLOAD, IMAGE_URL, image_id_of, refuse_absent_languages
from .images import path_inside
from .table_rows import table_rows
from .text_files import kind_of, open_plain, parse_json, read_json, read_json_lines
from .text_languages import SAMPLE, language_of_column, tag_in

logger = logging.getLogger(__name__)

TABLES = (".csv", ".tsv")
JSON_FILES = (".jsonl", ".ndjson", ".json")
TRANSLATION_FILES = (".tsv", ".jsonl")
METADATA = ("metadata.jsonl", "metadata.csv")
IMAGE_NAMES = (
    *("image", "file_name", "filename", "image_path", "image_file", "img", "photo", "picture", "path", "filepath"),
    *("file", "image_url", "url"),
)
_FOLDER = "\0folder"  # folder of a record's image, if not next to its file
_PART_ROWS = 10_000  # number of rows held as Python objects

Record = dict[str, Any]
Records = Iterator[tuple[int, Record]]  # each with its line, or its number in a JSON document


def records_of(file: Path) -> Records:
    """Yields the rows of a file that is a table, JSON lines, or one JSON document: a list of objects, or COCO's
    captions."""
    if not file.is_file():
        raise CorpusError(f"{file}: no such file")
    if kind_of(file) in JSON_FILES:
        yield from _json_records(file)
        return
    names, rows = table_rows(file)
    for line, cells in rows:
        yield line, {name: cell.strip() or None for name, cell in zip(names, cells, strict=True) if name}


def _json_records(file: Path) -> Records:
    if kind_of(file) != ".json" or not _is_document(file):
        yield from read_json_lines(file)
        return
    document = read_json(file)
    if isinstance(document, dict) and {"images", "annotations"} <= document.keys():
        document = _coco_records(document, file)
    if isinstance(document, dict):
        lists = [value for value in document.values() if isinstance(value, list)]
        document = lists[0] if len(lists) == 1 else [document]
    for number, record in enumerate(document if isinstance(document, list) else [document], 1):
        if not isinstance(record, dict):
            raise CorpusError(f"{file} item {number}: a JSON object is expected, such as {{…: …}}")
        yield number, record


def _is_document(file: Path) -> bool:
    """Returns whether a JSON file is one value, not one for each line."""
    try:
        with open_plain(file) as stream:
            first = parse_json(stream.readline(1 << 20).decode("utf-8-sig"))
            is_alone = not stream.readline().strip()
    except (CorpusError, UnicodeDecodeError, OSError, EOFError):
        return True
    if not isinstance(first, dict):
        return True
    lists = [value for name, value in first.items() if name not in (*CAPTION_COLUMNS, "translation")]
    return is_alone and any(isinstance(value, list) and value and isinstance(value[0], dict) for value in lists)


def _coco_records(document: Mapping[str, Any], file: Path) -> list[Record]:
    """Returns the images of COCO's captions, each with its captions."""
    captions: dict[Any, list[Any]] = {}
    for annotation in document["annotations"]:
        captions.setdefault(annotation.get("image_id"), []).append(annotation.get("caption"))
    images = [image for image in document["images"] if image.get("id") in captions]
    name = str(images[0].get("file_name")) if images else ""
    beside = [
        each for parent in (file.parent, file.parent.parent) for each in sorted(parent.iterdir()) if each.is_dir()
    ]
    folder = next((each for each in (file.parent, *beside) if (each / name).is_file()), file.parent)
    return [
        {
            "file_name": image.get("file_name"),
            "image_id": image["id"],
            "captions": captions[image["id"]],
            _FOLDER: folder,
        }
        for image in images
    ]


def is_table(source: str | Path, *endings: str) -> bool:
    """Returns whether a source is a file with a table's ending, compressed or not."""
    return kind_of(source) in endings and Path(source).is_file()


# ---- Translations ----


def translation_file(
    file: Path,
    rules: CaptionRules,
    *,
    columns: Mapping[str, str] | None = None,
    name: str | None = None,
    streaming: bool = False,
) -> Dataset | IterableDataset:
    """Reads the rows of a translation file, with normalized captions.

    Args:
        file: a table or JSON.
        rules: the rules for texts.
        columns: language -> column, if the names do not state the languages.
        name: the languages of parallel columns, such as `en-de`.
        streaming: whether to read the file during use.
    """
    is_json = kind_of(file) in JSON_FILES
    head = [_canonical(record) if is_json else record for _, record in islice(records_of(file), SAMPLE)]
    if not head:
        raise CorpusError(f"{file}: there are no rows")
    names = list(dict.fromkeys(each for record in head for each in record))
    nested = next((each for each in ("translation", "captions") if each in names), None)
    if columns is None and nested is not None:
        found, is_open = CaptionColumns(column=nested), False
    else:
        cells = {each: [record.get(each) for record in head] for each in names}
        try:
            given = columns or translation_columns(names, cells.__getitem__, rules.languages, name)
            ColumnNames(caption=given).check(names)
        except (CorpusError, LanguageTagError) as error:
            raise type(error)(f"{file} line 1: {error}") from error
        found = CaptionColumns({normalize_language(tag): column for tag, column in given.items()})
        is_open = is_json and columns is None  # other languages may follow
    kept: list[str] = [each for each in ("image_id", "split") if each in names]
    features = Features({each: Value("string") for each in kept} | {"captions": CAPTIONS})
    read = partial(_translations, file, rules, found, kept, set(names) if is_open else None)
    if streaming:
        return IterableDataset.from_generator(read, features=features)
    rows, parts = read(), []
    while part := list(islice(rows, _PART_ROWS)):  # stored compactly in Arrow before more lines are read
        parts.append(pa.Table.from_pylist(part, features.arrow_schema))  # takes a third of `Dataset.from_list`'s time
    if not parts and rules.languages is None:
        empty = [column for column in found.read if not any(record.get(column) for record in head)]
        raise CorpusError(f"{file}: no row has two texts" + f": {', '.join(map(repr, empty))} has none" * bool(empty))
    corpus = Dataset(pa.concat_tables(parts) if parts else features.arrow_schema.empty_table())
    whole = partial(translation_file, file, replace(rules, languages=None), columns=columns, name=name)
    refuse_absent_languages(corpus, rules, whole)
    return corpus


def _translations(
    file: Path, rules: CaptionRules, found: CaptionColumns, kept: list[str], known: set[str] | None
) -> Iterator[Record]:
    """Yields the rows of a translation corpus. With `known`, the column names so far, new columns are read, too."""
    place, record, by_language = "", Record(), dict(found.by_language)

    def texts() -> Iterator[Any]:
        nonlocal place, record
        columns = replace(found, by_language=by_language)
        for line, record in records_of(file):
            place = f"{file} line {line}"
            if known is not None:
                record = _canonical(record)
                for added in record.keys() - known:
                    known.add(added)
                    cells = record[added] if isinstance(record[added], list) else [record[added]]
                    if tag := language_of_column(added, cells, lenient=True):
                        by_language.setdefault(tag, added)
            value = columns.of(record)
            if by_language:  # a column that a row does not have is not empty there
                value = {tag: text for tag, text in value.items() if by_language[tag] in record}
            elif isinstance(value, dict):
                value = {tag: text or None for tag, text in value.items()}
            yield value

    count = RowCount(str(file))
    for captions in normalize_rows(texts(), rules, lambda _: place, count):
        if captions:
            row: Record = {each: record.get(each) for each in kept}
            if "image_id" in row:
                row["image_id"] = image_id_of(row["image_id"], place)
            yield row | {"captions": captions}
    count.report()


def _canonical(record: Record) -> Record:
    """Returns a row with canonical language names: `en` for `EN`."""
    spelled = {}
    for name, value in record.items():
        tag = tag_in(name)[0] or ""
        own = tag if name.replace("_", "-").lower() == tag.lower() else name
        if own in spelled:
            raise CorpusError(f"language {own!r} is given twice in one row")
        spelled[own] = value
    return spelled


def tsv_records(file: Path, key: str = "image_id") -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line, {column: cell}) of a table whose column names are all languages, except for the key."""
    names, rows = table_rows(file)
    spellings: dict[str, str] = {}
    for number, name in enumerate(names, 1):
        try:
            language = name if name == key else normalize_language(name)
        except LanguageTagError as error:
            raise LanguageTagError(f"{file} line 1: column {number} of the header: {error}") from None
        if language in spellings:
            raise CorpusError(f"{file} line 1: columns {spellings[language]!r} and {name!r} are both {language!r}")
        spellings[language] = name
    return ((line, dict(zip(names, cells, strict=True))) for line, cells in rows)


# ---- Images with captions ----


def caption_file(file: Path, rules: CaptionRules, named: ColumnNames = DEFAULT_COLUMNS) -> tuple[Dataset, Place]:
    """Returns the images that a file names, with normalized captions in all languages, and their names in errors."""
    numbered = list(records_of(file))
    if not numbered:
        raise CorpusError(f"{file}: there are no rows{' below the header' * (kind_of(file) in TABLES)}")
    unit = "item" if kind_of(file) == ".json" and _is_document(file) else "line"
    places = [f"{file} {unit} {line}" for line, _ in numbered]
    records = [record for _, record in numbered]
    names = list(dict.fromkeys(name for record in records for name in record if name != _FOLDER))
    named.check(names)
    image = named.image or next((name for each in IMAGE_NAMES for name in names if name.lower() == each), None)
    if image is None and "features" not in names:
        raise CorpusError(
            f"{file}: no column names the images, such as file_name or image; the columns are {', '.join(names)}"
        )
    sample = records[:: max(1, len(records) // SAMPLE)]
    found = find_captions(names, lambda name: [record.get(name) for record in sample], named, rules.languages)
    columns = {
        name: [record.get(name) for record in records]
        for name in names
        if name not in (image, *found.read) and any(record.get(name) is not None for record in records)
    }
    if image is not None:
        folders = _Folders()
        given = [(record.get(_FOLDER, file.parent), record.get(image)) for record in records]
        if any(folders.has(*each) for each in given):
            columns["image"] = [folders.image(*each, image, where) for each, where in zip(given, places, strict=True)]
        else:
            columns[IMAGE_URL] = [name for _, name in given]
            logger.warning("%s: %s has addresses: captions are read without images; %s", file, image, DOWNLOAD)
        columns["image_id"] = [
            image_id_of(record.get("image_id", record.get(image)), where)
            for record, where in zip(records, places, strict=True)
        ]
    every_language = replace(rules, languages=None)  # to keep all rows here
    values = map(found.of, records)
    columns["captions"] = list(normalize_rows(values, every_language, places.__getitem__, RowCount(str(file))))
    place = places.__getitem__
    return _in_columns(columns, place), place


class _Folders:
    """Finds files by names in data, even if the disk composes letters differently: `ä` is one code point or two, so
    names that look alike differ."""

    def __init__(self) -> None:
        self._named: dict[Path, dict[str, str]] = {}

    def has(self, folder: Path, name: Any) -> bool:
        """Returns whether a name refers to a file: it is not an address, or its file is in the folder."""
        return not isinstance(name, str) or "://" not in name or self._local(folder, name) is not None

    def image(self, folder: Path, name: Any, column: str, place: str) -> str:
        """Returns the path of an image."""
        if not isinstance(name, str) or not name.strip():
            raise CorpusError(f"{place}: no image in the column {column!r}")
        if "://" in name:
            local = self._local(folder, name)
            if local is None:
                raise CorpusError(f"{place}: {name!r} is an address, and {folder} has no such file: {DOWNLOAD}")
            return str(local.absolute())
        path = path_inside(folder, name, place)
        if "\\" in name and not _exists(path):
            path = path_inside(folder, name.replace("\\", "/"), place)
        if not _exists(path):
            path = self._find(folder, path.relative_to(folder.absolute())) or path
        return str(path.absolute())

    def _local(self, folder: Path, address: str) -> Path | None:
        inside = Path(unquote(urlsplit(address).path.lstrip("/")))
        if ".." in inside.parts:
            return None
        found = (self._find(folder, Path(*inside.parts[start:])) for start in range(len(inside.parts)))
        return next((path for path in found if path is not None), None)

    def _find(self, folder: Path, name: Path) -> Path | None:
        """Returns a file in a folder, by its name in any composition."""
        for part in name.parts:
            if folder not in self._named:
                entries = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
                self._named[folder] = {unicodedata.normalize("NFC", each): each for each in entries}
            own = self._named[folder].get(unicodedata.normalize("NFC", part))
            if own is None:
                return None
            folder = folder / own
        return folder if folder.is_file() else None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # not a possible file name
        return True


def _in_columns(columns: dict[str, list[Any]], place: Place) -> Dataset:
    made = {}
    for name, cells in columns.items():
        try:
            made[name] = _column(cells)
        except _NO_COLUMN as error:
            row = bisect_left(range(len(cells)), True, key=lambda last: not _fit_together(cells[: last + 1]))
            raise CorpusError(
                f"{place(row)}: {name!r} is {shortened(cells[row])}, which does not fit in a column with the values "
                f"before it: {error}"
            ) from error
    return Dataset(pa.table(made))


_NO_COLUMN = (pa.ArrowException, OverflowError, UnicodeEncodeError)


def _column(cells: list[Any]) -> pa.ChunkedArray:
    return Dataset.from_dict({"cells": cells}).data.column("cells")


def _fit_together(cells: list[Any]) -> bool:
    try:
        _column(cells)
    except _NO_COLUMN:
        return False
    return True

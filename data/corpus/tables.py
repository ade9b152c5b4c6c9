"""Files of captions and of translations: CSV and TSV (`table_rows`), JSON lines and JSON.

Their columns are read by the rule of `columns`. Images are named relative to the file.
"""

import logging
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, IterableDataset, Value

from ...utils.errors import CorpusError, LanguageTagError
from ...utils.languages import normalize_language
from .captions import CaptionRules, Place, normalize_rows, shortened
from .columns import CAPTION_COLUMNS, NO_NAMES, ColumnNames, text_columns, translation_columns
from .corpus import CAPTIONS, DOWNLOAD, IMAGE_URL, captions_column, image_id_of, refuse_absent_languages
from .images import path_inside
from .row_count import RowCount
from .table_rows import table_rows
from .text_files import kind_of, open_plain, parse_json, read_json, read_json_lines, read_lines
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
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_PART = 10_000  # number of rows that are held as Python objects

Record = dict[str, Any]
Records = Iterator[tuple[int, Record]]  # each with its line, or its number in a JSON document


def records_of(file: Path) -> Records:
    """The rows of a file that is a table, JSON lines, or one JSON document: a list of objects, or COCO's captions.

    Raises:
        CorpusError: for a file that cannot be read, and a row that cannot, with the line.
    """
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
    if not isinstance(document, list):
        raise CorpusError(f"{file}: a list of JSON objects is expected")
    for number, record in enumerate(document, 1):
        if not isinstance(record, dict):
            raise CorpusError(f"{file} item {number}: a JSON object is expected, such as {{…: …}}")
        yield number, record


def _is_document(file: Path) -> bool:
    """Whether a JSON file is one value, and not a line for each row."""
    try:
        with open_plain(file) as stream:
            first = parse_json(stream.readline(1 << 20).decode("utf-8-sig"))
            is_alone = not stream.readline().strip()
        if not isinstance(first, dict):
            return True
        lists = [value for name, value in first.items() if name not in (*CAPTION_COLUMNS, "translation")]
        return is_alone and any(isinstance(value, list) and value and isinstance(value[0], dict) for value in lists)
    except (CorpusError, UnicodeDecodeError, OSError, EOFError):
        return True


def _coco_records(document: Mapping[str, Any], file: Path) -> list[Record]:
    """The images of COCO's captions, each with its captions."""
    captions: dict[Any, list[Any]] = {}
    for annotation in document["annotations"]:
        captions.setdefault(annotation.get("image_id"), []).append(annotation.get("caption"))
    images = document["images"]
    if not images:
        return []
    name = str(images[0].get("file_name"))
    folders = [file.parent, *_folders_in(file.parent), *_folders_in(file.parent.parent)]
    folder = next((each for each in folders if (each / name).is_file()), file.parent)
    return [
        {
            "file_name": image.get("file_name"),
            "image_id": image.get("id"),
            "captions": captions.get(image.get("id"), []),
            _FOLDER: folder,
        }
        for image in images
        if image.get("id") in captions
    ]


_FOLDER = "\0folder"  # where the image of a record is, if not beside its file


def _folders_in(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_dir())


def is_table(source: str | Path, *endings: str) -> bool:
    """Whether a source is a file that ends as tables do, compressed or not."""
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
    """The rows of a translation file, with normalized captions.

    Args:
        file: a table or JSON.
        rules: the rules for texts.
        columns: language -> column, where the names do not tell the languages.
        name: the languages of parallel columns, such as `en-de`.
        streaming: whether to read the file while it is used.

    Raises:
        CorpusError, LanguageTagError: for a row that cannot be used, with the file and the line; for a stream, while
            it is read.
    """
    is_json = kind_of(file) in JSON_FILES
    head = [(line, _canonical(record) if is_json else record) for line, record in islice(records_of(file), SAMPLE)]
    if not head:
        raise CorpusError(f"{file}: there are no rows")
    names = list(dict.fromkeys(each for _, record in head for each in record))
    nested = next((each for each in ("translation", "captions") if each in names), None)
    if columns is not None:
        ColumnNames(caption=columns).check(names)
        chosen = {normalize_language(tag): column for tag, column in columns.items()}
    elif nested is not None:
        chosen = {}
    else:
        try:
            cells = {each: [record.get(each) for _, record in head] for each in names}
            chosen = translation_columns(names, cells.__getitem__, rules.languages, name)
        except (CorpusError, LanguageTagError) as error:
            raise type(error)(f"{file} line 1: {error}") from error
    is_open = columns is None and nested is None and is_json  # further languages may come later
    kept: list[str] = [each for each in ("image_id", "split") if each in names]
    features = Features({each: Value("string") for each in kept} | {"captions": CAPTIONS})
    read = partial(_translations, file, rules, chosen, nested, kept, set(names) if is_open else None)
    if streaming:
        return IterableDataset.from_generator(read, features=features)
    rows, parts = read(), []
    while part := list(islice(rows, _PART)):  # stored compactly in Arrow before more lines are read
        parts.append(pa.Table.from_pylist(part, features.arrow_schema))  # a third of the time of `Dataset.from_list`
    if not parts and rules.languages is None:
        empty = [column for column in chosen.values() if not any(record.get(column) for _, record in head)]
        which = f": {', '.join(map(repr, empty))} has none" if empty else ""
        raise CorpusError(f"{file}: no row has two texts{which}")
    corpus = Dataset(pa.concat_tables(parts) if parts else features.arrow_schema.empty_table())
    whole = partial(translation_file, file, replace(rules, languages=None), columns=columns, name=name)
    refuse_absent_languages(corpus, rules, whole)
    return corpus


def _translations(
    file: Path,
    rules: CaptionRules,
    chosen: dict[str, str],
    nested: str | None,
    kept: list[str],
    known: set[str] | None,
) -> Iterator[Record]:
    """The rows of a translation corpus."""
    lines: list[int] = [0]
    record: Record = {}
    columns = dict(chosen)

    def texts() -> Iterator[Any]:
        nonlocal record
        for lines[0], record in records_of(file):
            if known is not None:
                record = _canonical(record)
                for added in record.keys() - known:
                    known.add(added)
                    cells = record[added] if isinstance(record[added], list) else [record[added]]
                    if (tag := language_of_column(added, cells, lenient=True)) and tag not in columns:
                        columns[tag] = added
            value = (
                record.get(nested)
                if nested
                else {tag: record[name] for tag, name in columns.items() if name in record}
            )
            yield {tag: _filled(text) for tag, text in value.items()} if isinstance(value, dict) else value

    count = RowCount(str(file))
    for captions in normalize_rows(texts(), rules, lambda _: f"{file} line {lines[0]}", count):
        if captions:
            row: Record = {each: record.get(each) for each in kept}
            if "image_id" in row:
                row["image_id"] = image_id_of(row["image_id"], f"{file} line {lines[0]}")
            yield row | {"captions": captions}
    count.report()


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


def _canonical(record: Record) -> Record:
    """A row whose languages are spelled as they are in any other row: `en` for `EN`."""
    spelled = {}
    for name, value in record.items():
        tag = tag_in(name)[0] or ""
        own = tag if name.replace("_", "-").lower() == tag.lower() else name
        if own in spelled:
            raise CorpusError(f"language {own!r} is given twice in one row")
        spelled[own] = value
    return spelled


def _filled(text: Any) -> Any:
    return None if text in ("", []) else text


# ---- Images with captions ----


def caption_file(file: Path, rules: CaptionRules, named: ColumnNames = NO_NAMES) -> tuple[Dataset, Place]:
    """The images that a file names, with normalized captions in all languages, and what errors call the rows.

    Args:
        file: a table or JSON.
        rules: the rules for captions.
        named: what its columns are called.

    Raises:
        CorpusError, LanguageTagError: for a row that cannot be used, with the file and the line.
    """
    numbered = list(records_of(file))
    if not numbered:
        raise CorpusError(f"{file}: there are no rows{' below the header' * (kind_of(file) in TABLES)}")
    unit = "item" if kind_of(file) == ".json" and _is_document(file) else "line"
    places = [f"{file} {unit} {line}" for line, _ in numbered]
    place: Place = places.__getitem__
    records = [record for _, record in numbered]
    names = list(dict.fromkeys(name for record in records for name in record if name != _FOLDER))
    if kind_of(file) in TABLES:
        named.check(names)
    image = named.image or next((name for each in IMAGE_NAMES for name in names if name.lower() == each), None)
    captions, read = _captions(records, names, named, rules, place)
    columns = {
        name: [record.get(name) for record in records]
        for name in names
        if name not in (image, *read) and any(record.get(name) is not None for record in records)
    }
    if image is None and "features" not in names:
        raise CorpusError(
            f"{file}: no column names the images, such as file_name or image; the columns are {', '.join(names)}"
        )
    if image is not None:
        folders = _Folders()
        named_images = [(record.get(_FOLDER, file.parent), record.get(image)) for record in records]
        if any(folders.has(*each) for each in named_images):
            columns["image"] = [
                folders.image(folder, name, image, where)
                for (folder, name), where in zip(named_images, places, strict=True)
            ]
        else:
            columns[IMAGE_URL] = [name for _, name in named_images]
            logger.warning("%s: %s has addresses: captions are read without images; %s", file, image, DOWNLOAD)
        columns["image_id"] = [
            image_id_of(record.get("image_id", record.get(image)), where)
            for record, where in zip(records, places, strict=True)
        ]
    if "features" in columns:
        columns["features"] = [_numbers(cell, where) for cell, where in zip(columns["features"], places, strict=True)]
    every_language = replace(rules, languages=None)  # so that no row is left out here
    columns["captions"] = list(normalize_rows(captions, every_language, place, RowCount(str(file))))
    return _in_columns(columns, place), place


def _captions(
    records: list[Record], names: list[str], named: ColumnNames, rules: CaptionRules, place: Place
) -> tuple[Iterable[Any], list[str]]:
    """The captions of each row, in a form that `normalize_captions` takes, and the columns that they are read from."""
    if isinstance(named.caption, Mapping):
        chosen: Mapping[str, str] = named.caption
        missing = next((row for row, record in enumerate(records) if not record.keys() & {*chosen.values()}), None)
        if missing is not None:
            _check(ColumnNames(caption=chosen), records[missing], place(missing))
    elif named.caption is None and not set(CAPTION_COLUMNS) & set(names):
        cells = {name: [record.get(name) for record in records[:: max(1, len(records) // SAMPLE)]] for name in names}
        chosen = text_columns(names, cells.__getitem__, asked=rules.languages)
    else:
        chosen = {}
    if chosen:
        return (
            [{tag: _filled(record.get(name)) for tag, name in chosen.items()} for record in records],
            [*chosen.values()],
        )
    for row, record in enumerate(records) if named != NO_NAMES else ():
        _check(named, record, place(row))
    column = named.caption if isinstance(named.caption, str) else captions_column(names)
    values = (record.get(column) for record in records)
    if named.language is None:
        return values, [column]
    tagged = (
        [
            {"language": record.get(named.language), "text": text}
            for text in (value if isinstance(value, list) else [value])
        ]
        for record, value in zip(records, values, strict=True)
    )
    return tagged, [column, named.language]


def _check(named: ColumnNames, record: Record, place: str) -> None:
    try:
        named.check([*record])
    except CorpusError as error:
        raise CorpusError(f"{place}: {error}") from error


class _Folders:
    """Finds files by names that data give, also where the disk composes letters otherwise: `ä` is one code point or
    two, and names that look alike differ."""

    def __init__(self) -> None:
        self._named: dict[Path, dict[str, str]] = {}

    def has(self, folder: Path, name: Any) -> bool:
        """Whether a name is that of a file: not an address, or one of which the folder has the file."""
        return not isinstance(name, str) or "://" not in name or self._local(folder, name) is not None

    def image(self, folder: Path, name: Any, column: str, place: str) -> str:
        """The path of an image.

        Raises:
            CorpusError: for no name, one that leaves the folder, and an address of which the folder has no file.
        """
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
            path = self.find(folder, path.relative_to(folder.absolute())) or path
        return str(path.absolute())

    def _local(self, folder: Path, address: str) -> Path | None:
        inside = Path(unquote(urlsplit(address).path.lstrip("/")))
        if ".." in inside.parts:
            return None
        found = (self.find(folder, Path(*inside.parts[start:])) for start in range(len(inside.parts)))
        return next((path for path in found if path is not None), None)

    def find(self, folder: Path, name: Path) -> Path | None:
        """A file in a folder, by its name in any composition; None where there is none."""
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
    except (OSError, ValueError):  # a name that no file can have
        return True


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

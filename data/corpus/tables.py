"""Tables of captions and of translations: CSV, TSV and JSON as spreadsheets, pandas and shops write them."""

import ast
import codecs
import csv
import io
import logging
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from charset_normalizer import from_bytes
from datasets import Dataset

from ...utils.errors import CorpusError
from ...utils.language_matching import counts_as
from .columns import CAPTION_COLUMNS, ColumnNames, scripts_of, tag_in
from .corpus import DOWNLOAD, IMAGE_URL, PLACE, captions_in, image_id_of, listed
from .files import COMPRESSED, DAMAGED, kind_of, numbered_lines, open_plain, read_json, read_json_lines
from .images import path_inside

logger = logging.getLogger(__name__)

TAB = "\t"
JSON_FILES = (".jsonl", ".ndjson", ".json")
TABLES = (".csv", ".tsv", *JSON_FILES)
TRANSLATION_FILES = (".tsv", ".jsonl")
METADATA = ("metadata.jsonl", "metadata.csv")
IMAGE_NAMES = (
    *("image", "file_name", "filename", "image_path", "image_file", "img", "photo", "picture", "path", "filepath"),
    *("file", "image_url", "url"),
)

Record = dict[str, Any]


def read_table(file: Path, named: ColumnNames | None = None) -> Dataset:
    """Returns the rows of a table, JSON lines or a JSON document (a list of objects, or COCO's captions), with their
    names in `PLACE`. If columns are `named`, the rows are images: their files become `image`, and their names the
    `image_id` of rows without one. Addresses of images that are not local stay, in `IMAGE_URL`."""
    is_json = kind_of(file) in JSON_FILES
    rows = list(_json_records(file) if is_json else _csv_records(file))
    if not rows:
        raise CorpusError(f"{file}: no rows")
    places = [place for place, _ in rows]
    names = dict.fromkeys(name for _, record in rows for name in record)
    columns: Record = {name: [record.get(name) for _, record in rows] for name in names}
    if named is not None:
        columns = _with_images(columns, places, file, named)
    made: dict[str, pa.Array] = {}
    for name, cells in (columns | {PLACE: places}).items():
        if name in CAPTION_COLUMNS and any(isinstance(cell, dict) for cell in cells):
            cells = [captions_in(cell) if isinstance(cell, dict) else cell for cell in cells]  # a form for Arrow
        cells = [None if cell != cell else cell for cell in cells]  # NaN, which pandas writes
        if has_lists := any(isinstance(cell, list) for cell in cells):
            cells = [None if cell is None else listed(cell) for cell in cells]
        try:
            column = pa.array(cells, None if is_json or has_lists else pa.string())
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            raise CorpusError(f"{file}: the values of {name!r} do not fit in one column: {error}") from error
        if not pa.types.is_null(column.type):
            made[name] = column
    return Dataset(pa.table(made))


def _json_records(file: Path) -> Iterator[tuple[str, Record]]:
    try:
        document = read_json(file) if kind_of(file) == ".json" else None
    except CorpusError:  # one value on each line, or an error that names the line
        document = None
    if document is None:
        yield from read_json_lines(file)
        return
    if isinstance(document, dict) and {"images", "annotations"} <= document.keys():
        document = _coco_records(document)
    if isinstance(document, dict):
        lists = [value for name, value in document.items() if isinstance(value, list) and name not in CAPTION_COLUMNS]
        document = lists[0] if len(lists) == 1 and all(isinstance(each, dict) for each in lists[0]) else document
    if isinstance(document, dict) and len(document) > 1 and {*map(type, document.values())} <= {dict, list}:
        raise CorpusError(f"{file}: a list of objects is expected, which pandas writes with orient='records'")
    for number, record in enumerate(listed(document), 1):
        if not isinstance(record, dict):
            raise CorpusError(f"{file} item {number}: a JSON object is expected, such as {{…: …}}")
        yield f"{file} item {number}", record


def _coco_records(document: Record) -> list[Record]:
    captions: dict[Any, list[Any]] = {}
    for annotation in document["annotations"]:
        captions.setdefault(annotation.get("image_id"), []).append(annotation.get("caption"))
    return [
        {"file_name": image.get("file_name"), "image_id": image["id"], "captions": captions[image["id"]]}
        for image in document["images"]
        if image.get("id") in captions
    ]


def _with_images(columns: Record, places: Sequence[str], file: Path, named: ColumnNames) -> Record:
    names = list(columns)
    named.check(names)
    column = named.image or next((name for each in IMAGE_NAMES for name in names if name.lower() == each), None)
    if column is None:
        if "features" in names:
            return columns
        there = f"the columns are {', '.join(names)}"
        raise CorpusError(f"{file}: no column names the images, such as file_name or image; {there}")
    given = columns[column]
    for place, name in zip(places, given, strict=True):
        if not isinstance(name, str) or not name.strip():
            raise CorpusError(f"{place}: no image in the column {column!r}")
    # Images may be in a folder in the table's, and COCO has them in a folder next to it.
    parents = [file.parent, file.absolute().parent.parent] if kind_of(file) == ".json" else [file.parent]
    near = (each for parent in parents for each in sorted(parent.iterdir()) if each.is_dir())
    has_images = (each for each in chain([file.parent], near) if any(os.path.isfile(each / name) for name in given))
    folder = next(has_images, file.parent).absolute()
    found = _image_files(folder, given, places)
    others = {name: cells for name, cells in columns.items() if name not in (column, "image")}
    ids = columns.get("image_id") or given
    others["image_id"] = [
        image_id_of(name if each is None else each, place)
        for name, each, place in zip(given, ids, places, strict=True)
    ]
    if not any(found):
        logger.warning("%s: %s has addresses: captions are read without images; %s", file, column, DOWNLOAD)
        return {IMAGE_URL: given} | others
    if None in found:
        row = found.index(None)
        raise CorpusError(f"{places[row]}: {given[row]!r} is an address, and {folder} has no such file: {DOWNLOAD}")
    return {"image": found} | others


def _image_files(folder: Path, names: Sequence[str], places: Sequence[str]) -> list[str | None]:
    """Returns the files of images in the folder, which may be missing; None for an address without a local file."""

    @cache
    def entries(folder: Path) -> dict[str, str]:
        inside = sorted(os.listdir(folder)) if folder.is_dir() else []
        return {unicodedata.normalize("NFC", name): name for name in inside}

    def existing(path: Path) -> str | None:
        found = folder
        if not os.path.isfile(path):  # also of impossible names, unlike `Path.is_file`
            for part in path.relative_to(folder).parts:  # disks write `ä` as one code point or two
                found /= entries(found).get(unicodedata.normalize("NFC", part), part)
            path = found
        return str(path) if os.path.isfile(path) else None

    files = []
    for place, name in zip(places, names, strict=True):
        is_address = "://" in name
        parts = Path(unquote(urlsplit(name).path.lstrip("/"))).parts if is_address else ()
        inside = [str(Path(*parts[start:])) for start in range(len(parts)) if ".." not in parts]
        inside = inside if is_address else [name, name.replace("\\", "/")]
        paths = [path_inside(folder, each, place) for each in inside]
        found = next(filter(None, map(existing, paths)), None)
        files.append(found if found or is_address else str(paths[0]))
    return files


# ---- CSV and TSV ----

SCORE = "score"  # the column of numbers in a file without a header
_SAMPLE_BYTES = 1 << 18  # used to detect the encoding and the delimiter
_FIRST_ROWS = 20
_SEPARATOR = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)  # Excel's first line
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*", re.IGNORECASE)
_LATIN_PAGES = ("cp1252", "cp1250", "cp1254", "cp1257")
_ACCENTED = re.compile("[\u00c0-\u024f]")
_HEADERS = {*CAPTION_COLUMNS, "translation", "image_id", "english", "non_english", "anchor", "positive"}

_MISSING = {"", "nan", "NaN", "<NA>", "#N/A", "NULL", "None"}  # as pandas, Excel and databases write nothing

Rows = Iterator[tuple[int, list[str]]]  # (line, counted from 1, and cells) of each row


class _Form(NamedTuple):
    encoding: str
    newline: str
    delimiter: str
    skipped: int  # number of lines before the header
    quoted: bool


def _csv_records(file: Path) -> Iterator[tuple[str, Record]]:
    names, rows = table_rows(file)
    for line, cells in rows:
        stripped = zip(names, map(str.strip, cells), strict=True)
        yield (
            f"{file} line {line}",
            {name: None if cell in _MISSING else _texts_in(cell) for name, cell in stripped if name},
        )


def _texts_in(cell: str) -> str | list[str]:
    """Returns the texts of a list, which pandas writes as in Python, or the cell."""
    if cell.startswith("[") and cell.endswith("]"):
        try:
            found: list[str] = ast.literal_eval(cell)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return cell
        return found if all(isinstance(each, str) for each in found) else cell
    return cell


def table_rows(file: Path) -> tuple[list[str], Rows]:
    """Returns the names of the columns, "" for one without a name, and the rows that are not blank, with a cell for
    each name. A file of pairs without a header is read if its name states the languages."""
    form = _form_of(file)
    rows = _rows(file, form)
    first = list(islice(rows, _FIRST_ROWS))
    if not first:
        return [], iter(())
    names = [cell.strip() for cell in first[0][1]]
    if (pair := pair_in_name(file)) and not _is_header(names, pair):
        names = _names_of_pair(pair, [cells for _, cells in first], file)
    else:
        del first[0]
        if repeated := next((name for name in names if name and names.count(name) > 1), None):
            raise CorpusError(f"{file} line {form.skipped + 1}: the column {repeated!r} occurs twice")
    return names, _whole(file, names, chain(first, rows), form.delimiter)


def pair_in_name(file: str | Path) -> tuple[str, str] | None:
    """Returns the likeliest two adjacent languages in a file's name, such as `en` and `de` in
    `TED2020-en-de.tsv.gz`."""
    path = Path(file)
    stem = Path(path.stem).stem if path.suffix.lower() in COMPRESSED else path.stem
    found = []
    for pair in pairwise(re.split(r"[.-]", stem)):
        first, second = (tag_in(part)[0] for part in pair)
        # `dev` and `all` are also languages, but in no script that CLDR knows.
        if first and second and first != second and scripts_of(first) and scripts_of(second):
            found.append((sum(len(part) == 2 for part in pair), (first, second)))
    return max(found, key=lambda each: each[0])[1] if found else None


def has_header(file: Path) -> bool:
    first, pair = next(_rows(file, _form_of(file)), None), pair_in_name(file)
    return first is None or pair is None or _is_header([cell.strip() for cell in first[1]], pair)


def _is_header(names: list[str], pair: tuple[str, str]) -> bool:
    """Returns whether these are column names: both languages of `pair`, only other tags of two letters, or two of the
    usual names in text tables. A word may also be a tag, such as `low`."""
    found = [tag_in(name) for name in names]
    tags = {tag for tag, _ in found if tag is not None}
    if {*pair} <= {counts_as(tag, pair) for tag in tags}:
        return True
    if len(tags) == len(names) > 1 and all(len(name) == 2 for name in names):
        return True
    return sum(stated or name.lower() in _HEADERS for name, (_, stated) in zip(names, found, strict=True)) > 1


def _names_of_pair(pair: tuple[str, str], rows: list[list[str]], file: Path) -> list[str]:
    """Returns the column names of a file without a header: two texts, perhaps with a number before or after them. In
    a file with more columns, one whose cells repeat, such as parts of speech, is not a text."""
    full = [row for row in rows if len(row) == len(rows[0])]
    columns = list(zip(*full, strict=True))
    numbers = [2 * sum(map(bool, map(_NUMBER.fullmatch, cells))) >= len(full) for cells in columns]
    repeating = [
        not number and 2 * len(set(cells)) <= len(full) for cells, number in zip(columns, numbers, strict=True)
    ]
    skipped = repeating if numbers.count(False) - repeating.count(True) >= 2 else [False] * len(columns)
    if numbers.count(False) < 2:
        raise CorpusError(f"{file} line 1: {len(numbers)} cells, where two texts are expected, and perhaps a score")
    texts, scores = iter(pair), iter([SCORE])
    return [
        "" if skip else next(scores if is_number else texts, "")
        for skip, is_number in zip(skipped, numbers, strict=True)
    ]


def _whole(file: Path, names: list[str], rows: Rows, delimiter: str) -> Rows:
    """Yields the rows, each as long as the header. Spreadsheets add empty cells at the end."""
    for line, cells in rows:
        while len(cells) > len(names) and not cells[-1].strip():
            del cells[-1]
        if len(cells) != len(names) and (len(cells) > len(names) or all(names[len(cells) :])):
            raise CorpusError(
                f"{file} line {line}: {len(cells)} of {len(names)} cells, which are divided by "
                f"{'tabs' if delimiter == TAB else repr(delimiter)}; the columns are {', '.join(names)}"
            )
        yield line, cells + [""] * (len(names) - len(cells))


def _rows(file: Path, form: _Form) -> Rows:
    numbered = islice(numbered_lines(file, partial(_open_utf8, form=form)), form.skipped, None)
    if not form.quoted:
        yield from ((line, text.split(form.delimiter)) for line, text in numbered if text.strip())
        return
    reader = csv.reader((f"{text}\n" for _, text in numbered), delimiter=form.delimiter, strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield form.skipped + reader.line_num, cells
    except csv.Error as error:
        raise CorpusError(f"{file} line {form.skipped + reader.line_num}: {error}") from error


def _open_utf8(file: Path, form: _Form) -> IO[bytes]:
    """Opens a file as UTF-8 with line feeds; only files in another form, from spreadsheets, are read as a whole."""
    if form.encoding == "utf-8-sig" and form.newline == "\n":
        return open_plain(file)
    with open_plain(file) as stream:
        return io.BytesIO(stream.read().decode(form.encoding).replace(form.newline, "\n").encode())


def _form_of(file: Path) -> _Form:
    try:
        with open_plain(file) as stream:
            content = stream.read(_SAMPLE_BYTES)
    except DAMAGED as error:
        raise CorpusError(f"{file} after line 0: {error}") from error
    encoding = _encoding_of(content, file)
    sample = content.decode(encoding, errors="ignore").lstrip("\ufeff")
    newline = "\r" if "\r" in sample and "\n" not in sample else "\n"
    first = next((line for line in sample.split(newline) if line.strip()), "")
    separator = _SEPARATOR.fullmatch(first)
    delimiter = separator[1] if separator else TAB if TAB in first else max(",;|", key=first.count)
    form = _Form(encoding, newline, delimiter, 1 if separator else 0, quoted=True)
    return form if delimiter != TAB or _is_quoted(file, form) else form._replace(quoted=False)


def _is_quoted(file: Path, form: _Form) -> bool:
    """Returns whether quotation marks between tabs enclose cells, as pandas and spreadsheets write them, instead of
    being part of the texts, as in most published files of pairs."""
    width = 0
    try:
        for _, cells in _rows(file, form):
            width = width or len(cells)
            if len(cells) > width or any(TAB in cell and "\n" in cell for cell in cells):
                return False
    except CorpusError:
        return False
    return True


def _encoding_of(content: bytes, file: Path) -> str:
    """Returns UTF-8 or UTF-16; for a spreadsheet's CSV that is neither, the most likely encoding, with a warning. Code
    pages of accented Latin letters cannot be told apart: such a text must be the same in all of them, as German is."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if b"\0" in content:  # ASCII letters in two bytes, without a byte order mark
        return "utf-16-le" if content[1::2].count(0) >= content[::2].count(0) else "utf-16-be"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(content)  # the last character may be cut off
    except UnicodeDecodeError:
        best = from_bytes(content).best() if kind_of(file) == ".csv" else None
        encoding = None if best is None or _ACCENTED.search(str(best)) else best.encoding
        if len({content.decode(page, "replace") for page in _LATIN_PAGES}) == 1:
            encoding = _LATIN_PAGES[0]
        if best is not None and encoding is not None:
            logger.warning("%s is not UTF-8 and is read as %s; save it as UTF-8 if that is wrong", file, encoding)
            return encoding
    return "utf-8-sig"

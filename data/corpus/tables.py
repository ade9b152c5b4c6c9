"""Files of captions and of translations: CSV and TSV, JSON lines and JSON. The rule in `columns` finds their columns,
and images are named relative to the file.

CSV and TSV are read as spreadsheets, pandas and shops write them: with any encoding, delimiter (or Excel's `sep=;`)
and line ends, cells between tabs quoted or not, compressed or not. A file of sentence pairs without a header is read
if its name states the languages, such as `TED2020-en-de-train.tsv.gz`.
"""

import csv
import io
import logging
import re
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from charset_normalizer import from_bytes
from datasets import Dataset, Features, IterableDataset, Value

from ...utils.errors import CorpusError, LanguageTagError, wrong_encoding
from ...utils.languages import counts_as, normalize_language
from .captions import CaptionRules, Place, RowCount, normalize_row, normalize_rows
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
from .text_files import (
    COMPRESSED,
    DAMAGED,
    MAX_BYTES,
    kind_of,
    open_plain,
    parse_json,
    read_json,
    read_json_lines,
)
from .text_languages import SAMPLE, language_of_column, scripts_of, tag_in

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
    near = [each for parent in (file.parent, file.parent.parent) for each in sorted(parent.iterdir()) if each.is_dir()]
    folder = next((each for each in (file.parent, *near) if (each / name).is_file()), file.parent)
    return [
        {"file_name": image.get("file_name"), "image_id": image["id"], "captions": captions[image["id"]]}
        | {_FOLDER: folder}
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
    count, by_language = RowCount(str(file)), dict(found.by_language)
    for line, record in records_of(file):
        place = f"{file} line {line}"
        if known is not None:
            record = _canonical(record)
            for added in record.keys() - known:
                known.add(added)
                cells = record[added] if isinstance(record[added], list) else [record[added]]
                if tag := language_of_column(added, cells, lenient=True):
                    by_language.setdefault(tag, added)
        value = replace(found, by_language=by_language).of(record)
        if by_language:  # a column that a row does not have is not empty there
            value = {tag: text for tag, text in value.items() if by_language[tag] in record}
        elif isinstance(value, dict):
            value = {tag: text or None for tag, text in value.items()}
        if captions := normalize_row(value, rules, place, count):
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
    place, count = places.__getitem__, RowCount(str(file))
    columns["captions"] = list(normalize_rows(map(found.of, records), every_language, place, count))
    made = {}
    for name, values in columns.items():
        try:
            made[name] = Dataset.from_dict({name: values}).data.column(name)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            raise CorpusError(f"{file}: the values of {name!r} do not fit in one column: {error}") from error
    return Dataset(pa.table(made)), place


class _Folders:
    """Finds files by names in data, even if the disk composes letters differently: `ä` is one code point or two, so
    names that look alike differ."""

    def __init__(self) -> None:
        self._named: dict[Path, dict[str, str]] = {}

    def has(self, folder: Path, name: Any) -> bool:
        """Returns whether a name is not an address, or that of a file in the folder."""
        return not isinstance(name, str) or "://" not in name or self._local(folder, name) is not None

    def image(self, folder: Path, name: Any, column: str, place: str) -> str:
        """Returns the path of an image."""
        if not isinstance(name, str) or not name.strip():
            raise CorpusError(f"{place}: no image in the column {column!r}")
        if "://" in name:
            path = self._local(folder, name)
            if path is None:
                raise CorpusError(f"{place}: {name!r} is an address, and {folder} has no such file: {DOWNLOAD}")
        else:
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


# ---- Rows of CSV and TSV ----

DELIMITERS = ",;\t|"
SCORE = "score"  # the column of numbers in a file without a header
_SAMPLE_CHARACTERS = 1 << 16  # used to detect the delimiter
_SAMPLE_BYTES = 1 << 18  # used to detect the encoding
_FIRST_ROWS = 20
_SEPARATOR = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
_QUOTED = re.compile(r'\s*"(?:[^"]|"")*"\s*')
_HEADERS = {*CAPTION_COLUMNS, "translation", "image_id", "english", "non_english", "anchor", "positive"}

Rows = Iterator[tuple[int, list[str]]]  # (line, counted from 1, and cells) of each row


class _Form(NamedTuple):
    """The format of a file."""

    encoding: str
    newline: str
    delimiter: str
    skipped: int  # number of lines before the header
    quoted: bool


def table_rows(file: Path) -> tuple[list[str], Rows]:
    """Returns the names of the columns, "" for one without a name, and the rows that are not blank, with a cell for
    each name."""
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
    return names, _whole(file, names, chain(first, rows), form)


def pair_in_name(file: str | Path) -> tuple[str, str] | None:
    """Returns two adjacent languages in the name of a file, such as `en` and `de` in `TED2020-en-de-train.tsv.gz`; the
    most likely pair if there are several."""
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
    """Returns whether the first row of a file has column names."""
    first = next(_rows(file, _form_of(file)), None)
    pair = pair_in_name(file)
    return first is None or pair is None or _is_header([cell.strip() for cell in first[1]], pair)


def _is_header(names: list[str], pair: tuple[str, str]) -> bool:
    """Returns whether these are column names, in a file whose name has a pair of languages: both languages, only other
    tags of two letters, or two of the usual names in text tables. A word may also be a tag, such as `low`."""
    found = [tag_in(name) for name in names]
    tags = {tag for tag, _ in found if tag is not None}
    if {*pair} <= {counts_as(tag, pair) for tag in tags}:
        return True
    if len(tags) == len(names) > 1 and all(len(name) == 2 for name in names):
        return True
    return sum(stated or name.lower() in _HEADERS for name, (_, stated) in zip(names, found, strict=True)) > 1


def _names_of_pair(pair: tuple[str, str], rows: list[list[str]], file: Path) -> list[str]:
    """Returns the column names of a file without a header: two texts, perhaps with a number before or after them."""
    width = len(rows[0])
    full = [row for row in rows if len(row) == width]
    numbers = [column for column in range(width) if 2 * sum(_is_number(row[column]) for row in full) >= len(full)]
    texts = [column for column in range(width) if column not in numbers]
    if len(texts) < 2:
        raise CorpusError(f"{file} line 1: {width} cells, where two texts are expected, and perhaps a score")
    names = [""] * width
    for column, name in [*zip(texts, pair, strict=False), *((column, SCORE) for column in numbers[:1])]:
        names[column] = name
    return names


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _whole(file: Path, names: list[str], rows: Rows, form: _Form) -> Rows:
    """Yields the rows, each as long as the header. Spreadsheets add empty cells at the end."""
    for line, cells in rows:
        while len(cells) > len(names) and not cells[-1].strip():
            del cells[-1]
        if len(cells) < len(names) and all(names[len(cells) :]):
            problem = f"{len(cells)} of {len(names)} cells; column {names[len(cells)]!r} is missing"
            if any(each != form.delimiter and each in " ".join(cells) for each in DELIMITERS):
                needed = "tabs" if form.delimiter == "\t" else repr(form.delimiter)
                problem += f": {needed} are needed between cells"
            raise CorpusError(f"{file} line {line}: {problem}")
        if len(cells) > len(names):
            raise CorpusError(f"{file} line {line}: {len(cells)} cells, where the header has {len(names)} columns")
        yield line, cells + [""] * (len(names) - len(cells))


def _rows(file: Path, form: _Form) -> Rows:
    """Yields all rows, including the header."""
    with _opened(file, form) as lines:
        for _ in range(form.skipped):
            next(lines, None)
        if not form.quoted:
            for line, text in enumerate(lines, form.skipped + 1):
                if text.strip():
                    yield line, text.rstrip("\r\n").split(form.delimiter)
            return
        reader = csv.reader(lines, delimiter=form.delimiter, strict=True)
        try:
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    yield form.skipped + reader.line_num, cells
        except csv.Error as error:
            raise CorpusError(f"{file} line {form.skipped + reader.line_num}: {error}") from error


@contextmanager
def _opened(file: Path, form: _Form) -> Iterator[Iterator[str]]:
    """Opens the lines of a file."""
    number = 0

    def lines(stream: io.TextIOWrapper) -> Iterator[str]:
        nonlocal number
        for number, line in enumerate(iter(partial(stream.readline, MAX_BYTES), ""), 1):
            if len(line) == MAX_BYTES:
                raise CorpusError(f"{file} line {number}: more than the {MAX_BYTES:,} characters that a line may have")
            yield line if form.newline == "\n" else line.replace("\r", "\n")

    try:
        with io.TextIOWrapper(open_plain(file), form.encoding, newline=form.newline) as stream:
            yield lines(stream)
    except UnicodeDecodeError as error:
        raise CorpusError(f"{file} line {number + 1}: {wrong_encoding(error)}") from error
    except DAMAGED as error:
        raise CorpusError(f"{file} after line {number}: {error}") from error


def _form_of(file: Path) -> _Form:
    content = b""
    try:
        with open_plain(file) as stream:
            while len(content) < _SAMPLE_BYTES and (chunk := stream.read1(1 << 14)):  # type: ignore[attr-defined]
                content += chunk
    except DAMAGED as error:
        if not content:
            raise CorpusError(f"{file} after line 0: {error}") from error  # otherwise raised on reading
    encoding = _encoding_of(content, file)
    sample = content.decode(encoding, errors="ignore")[:_SAMPLE_CHARACTERS]
    newline = "\r" if "\r" in sample and "\n" not in sample else "\n"
    separator = _SEPARATOR.fullmatch(sample.lstrip("\ufeff").partition(newline)[0])
    delimiter = separator[1] if separator else _delimiter_of(sample)
    form = _Form(encoding, newline, delimiter, 1 if separator else 0, quoted=True)
    return form if delimiter != "\t" or _is_quoted(file, form) else form._replace(quoted=False)


def _is_quoted(file: Path, form: _Form) -> bool:
    """Returns whether quotation marks between tabs enclose cells, as pandas and spreadsheets write them, instead of
    being part of the texts, as in most published files of pairs."""
    with _opened(file, form) as lines:
        if not any('"' in line for line in lines):
            return False
    try:
        with _opened(file, form) as lines:
            reader = csv.reader(lines, delimiter="\t", strict=True)
            width, has_long_cells = len(next(reader, [])), False
            for cells in reader:
                if len(cells) > width or any("\t" in cell and "\n" in cell for cell in cells):
                    return False
                has_long_cells = has_long_cells or any("\n" in cell for cell in cells)
    except csv.Error:
        return False
    with _opened(file, form) as lines:
        return has_long_cells or all(
            _QUOTED.fullmatch(cell) for line in lines for cell in line.split("\t") if '"' in cell
        )


def _encoding_of(content: bytes, file: Path) -> str:
    """Returns UTF-8 or UTF-16; for a spreadsheet's CSV that is neither, the most likely encoding, with a warning."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if b"\0" in content[:_SAMPLE_CHARACTERS]:  # ASCII letters in two bytes, without a byte order mark
        return "utf-16-le" if content[1::2].count(0) >= content[::2].count(0) else "utf-16-be"
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        if kind_of(file) == ".csv" and (len(content) < _SAMPLE_BYTES or error.start < len(content) - 4):
            best = from_bytes(content).best()
            if best is None:
                raise CorpusError(f"{file}: its encoding cannot be found: save it as UTF-8") from error
            lines = content.decode(best.encoding, errors="replace").splitlines()
            shown = next((line.strip() for line in lines if not line.isascii()), "")
            _warn_once(
                f"{file} is not UTF-8 and is read as {best.encoding}, which gives {shown!r:.60}; save it as UTF-8 if "
                "that is wrong"
            )
            return str(best.encoding)
    return "utf-8-sig"


_warn_once = cache(logger.warning)  # a file is opened several times


def _delimiter_of(text: str) -> str:
    """Returns the character between the cells of a table; its first line contains it."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    found = [each for each in DELIMITERS if each in first]
    if len(found) < 2:
        return found[0] if found else ","
    if "\t" in found:
        return "\t"
    try:
        return csv.Sniffer().sniff(text, "".join(found)).delimiter
    except csv.Error:  # cells of one row have several, and no count is the same in all rows
        return max(found, key=first.count)

"""The rows of CSV and TSV files, as spreadsheets, pandas and shops write them.

The module detects the encoding, the delimiter (or Excel's `sep=;`), whether the cells between tabs are quoted, and
line ends of any kind; a file may be compressed. A file of sentence pairs without a header is read if its name states
the languages, such as `TED2020-en-de-train.tsv.gz`.
"""

import csv
import io
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import NamedTuple

from charset_normalizer import from_bytes

from ...utils.errors import CorpusError, wrong_encoding
from ...utils.languages import counts_as
from .columns import CAPTION_COLUMNS
from .text_files import COMPRESSED, DAMAGED, MAX_BYTES, kind_of, open_plain
from .text_languages import scripts_of, tag_in

logger = logging.getLogger(__name__)

DELIMITERS = ",;\t|"
SCORE = "score"  # the column of numbers in a file without a header
_SAMPLE_CHARACTERS = 1 << 16  # used to detect the delimiter
_SAMPLE_BYTES = 1 << 18  # used to detect the encoding
_FIRST_ROWS = 20
_SEPARATOR = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
_QUOTED = re.compile(r'\s*"(?:[^"]|"")*"\s*')
_HEADERS = frozenset({*CAPTION_COLUMNS, "translation", "image_id", "english", "non_english", "anchor", "positive"})

Rows = Iterator[tuple[int, list[str]]]  # (line, counted from 1, and cells) of each row


class TableRows(NamedTuple):
    """The names of the columns, "" for one without a name, and the rows, with a cell for each name."""

    names: list[str]
    rows: Rows


class _Form(NamedTuple):
    """The format of a file."""

    encoding: str
    newline: str
    delimiter: str
    skipped: int  # number of lines before the header
    quoted: bool


def table_rows(file: Path) -> TableRows:
    """Returns the rows of a file that are not blank."""
    form = _form_of(file)
    rows = _rows(file, form)
    first = list(islice(rows, _FIRST_ROWS))
    if not first:
        return TableRows([], iter(()))
    names = [cell.strip() for cell in first[0][1]]
    if (pair := pair_in_name(file)) and not _is_header(names, pair):
        names = _names_of_pair(pair, [cells for _, cells in first], file)
    else:
        del first[0]
        if repeated := next((name for name in names if name and names.count(name) > 1), None):
            raise CorpusError(f"{file} line {form.skipped + 1}: the column {repeated!r} occurs twice")
    return TableRows(names, _whole(file, names, chain(first, rows), form))


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
    delimiter = separator[1] if separator else delimiter_of(sample)
    form = _Form(encoding, newline, delimiter, 1 if separator else 0, quoted=True)
    return form if delimiter != "\t" or _is_quoted(file, form) else form._replace(quoted=False)


def _is_quoted(file: Path, form: _Form) -> bool:
    """Returns whether quotation marks between tabs enclose cells instead of being part of the texts. pandas and
    spreadsheets enclose each cell that contains a mark, and double the mark; most published files of pairs enclose
    none."""
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
            _warn_of_encoding(file, best.encoding, next((line.strip() for line in lines if not line.isascii()), ""))
            return str(best.encoding)
    return "utf-8-sig"


@cache
def _warn_of_encoding(file: Path, encoding: str, shown: str) -> None:
    """Warns once, although a file is opened several times."""
    logger.warning(
        "%s is not UTF-8 and is read as %s, which gives %.60r; save it as UTF-8 if that is wrong",
        *(file, encoding, shown),
    )


def delimiter_of(text: str) -> str:
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

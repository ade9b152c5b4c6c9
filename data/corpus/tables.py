"""CSV and TSV files of captions or translations, as spreadsheets and shops write them.

The encoding is found by charset-normalizer, the delimiter by the standard library's `csv.Sniffer`. The first line has
the names of the columns, which `columns` reads; images are named relative to the file.
"""

import csv
import io
import logging
from functools import partial
from pathlib import Path

from charset_normalizer import from_bytes
from datasets import Dataset

from ...configuration.errors import CorpusError
from .captions import Place
from .columns import NO_NAMES, ColumnNames
from .images import path_inside
from .text_files import line_of

logger = logging.getLogger(__name__)

TABLES = (".csv", ".tsv")
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

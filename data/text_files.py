"""Text files line by line, plain or compressed: what is wrong with one names the file and the line."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .captions import parse_object
from .errors import CorpusError


def read_lines(file: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of the lines that are not blank. A file that ends in `.gz` is decompressed.

    Raises:
        CorpusError: for a file that cannot be read, or is not UTF-8.
    """
    opener = gzip.open if file.suffix == ".gz" else open
    number = 0
    try:
        with opener(file, "rb") as stream:
            for number, line in enumerate(stream, 1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if text and not text.isspace():
                    yield number, text
    except UnicodeDecodeError as error:
        raise CorpusError(f"{file} line {number}: not UTF-8: {error}") from error
    except (OSError, EOFError) as error:
        raise CorpusError(f"{file} after line {number}: {error}") from error


def read_json_lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of a file of JSON lines.

    Raises:
        CorpusError: as `read_lines`, and for a line that is no JSON object.
    """
    for line, text in read_lines(file):
        try:
            yield line, parse_object(text)
        except CorpusError as error:
            raise CorpusError(f"{file} line {line}: {error}") from error

"""Reads files with one line for each word, word vectors and dictionaries, as text or gzip."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path


def lines_of(path: str | Path, error_class: type[ValueError]) -> Iterator[bytes]:
    """Yields the lines of a file, without spaces at their ends.

    Only a line feed ends a line: some words contain characters that Unicode counts as line ends too.

    Raises:
        error_class: if the file is missing, unreadable or truncated; the message names it.
    """
    path = Path(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for line in file:
                yield line.rstrip(b" \r\n")
    except FileNotFoundError as error:
        raise error_class(f"{path}: no such file") from error
    except (OSError, EOFError, zlib.error) as error:
        raise error_class(f"{path}: {error}") from error


def shown(line: bytes) -> str:
    """Returns a short form of a line for an error message."""
    text = line.decode("utf-8", "replace")
    return repr(text if len(text) <= 40 else f"{text[:40]}…")

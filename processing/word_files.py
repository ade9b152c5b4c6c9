"""Files with a line for each word: word vectors and dictionaries, as text or gzip."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path


def lines_of(path: str | Path, error_class: type[ValueError]) -> Iterator[bytes]:
    """The lines, without spaces at their ends. They end at a line feed alone: some words hold what Unicode also takes
    for the end of a line.

    Raises:
        error_class: for a file that is missing, unreadable or cut off; the message names it.
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
    """A line as errors show it."""
    text = line.decode("utf-8", "replace")
    return repr(text if len(text) <= 40 else f"{text[:40]}…")

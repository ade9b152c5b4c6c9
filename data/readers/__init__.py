"""Readers of published data sets. They turn each record of a file into a row; their errors name the file, and the line
or the key of the record."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Image, Value

from ...utils.errors import CorpusError
from ..corpus.captions import enumeration
from ..corpus.corpus import CAPTIONS
from ..corpus.images import path_inside

logger = logging.getLogger(__name__)

TRUTH = ("false", "true")  # the answers to a yes-or-no task, in the order of their labels
CORPUS = {"image": Image(), "image_id": Value("string"), "captions": CAPTIONS}
Record = tuple[str, dict[str, Any]]  # (place of a record in its file, for error messages; the record)


def text_of(record: dict[str, Any], key: str, place: str) -> str:
    """Returns the text of a record under a key; refuses an empty one."""
    text = record.get(key)
    if not isinstance(text, str) or not text.strip():
        raise CorpusError(f"{place}: {key!r} should be a text, and is {text!r}")
    return text


def identifier_of(record: dict[str, Any], key: str, place: str) -> str:
    """Returns the name or number of a record under a key, as text."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise CorpusError(f"{place}: {key!r} should name something, and is {value!r}")
    return str(value)


def image_path(folder: str | Path, name: str, place: str) -> str:
    """Returns the path of an image, which is opened on access; its name must not lead out of the folder."""
    path = path_inside(folder, name, place)
    if not path.is_file():
        raise CorpusError(f"{place}: there is no image {path}")
    return str(path)


def task_dataset(rows: Iterable[dict[str, Any]], features: dict[str, Any], source: str | Path) -> Dataset:
    """Makes a dataset of rows that have the same columns; features of columns that they do not have are left out."""
    table = list(rows)
    if not table:
        raise CorpusError(f"{source}: no rows")
    present = Features({name: feature for name, feature in features.items() if name in table[0]})
    return Dataset.from_list(table, features=present).select_columns(list(present))


def warn_of(what: str, places: list[str]) -> None:
    """Logs a warning that counts and names rows, if there are any."""
    if places:
        logger.warning("%s in %d rows: %s", what, len(places), enumeration(places))

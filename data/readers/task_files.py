"""What the readers of published task files share: records with their place, images by folder, datasets with labels.

A reader turns each record of a file into a row, and whatever is wrong with one into an error that names the file and
the line or the key.
"""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from datasets import Dataset, Features

from ...configuration.errors import BadImageError, BadTextError, CorpusError
from ..corpus.captions import enumeration
from ..corpus.images import path_inside

logger = logging.getLogger(__name__)

TRUTH = ("false", "true")  # the answers to a yes-or-no task, in the order of their labels
Record = tuple[str, dict[str, Any]]  # the place of a record in its file, for errors; and the record


def text_of(record: dict[str, Any], key: str, place: str) -> str:
    """The text that a record has under a key.

    Raises:
        BadTextError: when there is no text, or an empty one.
    """
    text = record.get(key)
    if not isinstance(text, str) or not text.strip():
        raise BadTextError(f"{place}: {key!r} should be a text, and is {text!r}")
    return text


def identifier_of(record: dict[str, Any], key: str, place: str) -> str:
    """The name or number that a record has under a key, as text.

    Raises:
        CorpusError: when it is no string or number.
    """
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise CorpusError(f"{place}: {key!r} should name something, and is {value!r}")
    return str(value)


def image_path(folder: str | Path, name: str, place: str) -> str:
    """The path of an image, which is opened when it is used.

    Raises:
        CorpusError: when the name leaves the folder.
        BadImageError: when it is not there.
    """
    path = path_inside(folder, name, place)
    if not path.is_file():
        raise BadImageError(f"{place}: there is no image {path}")
    return str(path)


def task_dataset(rows: Iterable[dict[str, Any]], features: dict[str, Any], source: str | Path) -> Dataset:
    """The rows, which all have the same columns, as a dataset with those of `features` that they have.

    Raises:
        CorpusError: when there is no row.
    """
    table = list(rows)
    if not table:
        raise CorpusError(f"{source}: there are no rows")
    present = Features({name: feature for name, feature in features.items() if name in table[0]})
    return Dataset.from_list(table, features=present).select_columns(list(present))


def warn_of(what: str, places: list[str]) -> None:
    """Say how many there were and where, if any."""
    if places:
        logger.warning("%s in %d rows: %s", what, len(places), enumeration(places))

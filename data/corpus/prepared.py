"""Corpora that are written to a cache once, and then read from the disk."""

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from datasets import Dataset, Features
from datasets.exceptions import DatasetGenerationError

from ...configuration.errors import CorpusError


def cache_key(*settings: Any) -> str:
    """A name for what is made of files with some settings."""
    return blake2b(repr(settings).encode(), digest_size=8).hexdigest()


def prepared(
    rows: Callable[[], Iterable[dict[str, Any]]], features: Features, folder: Path, *, source: str | Path
) -> Dataset:
    """A dataset of rows, which are written to a folder unless they are there.

    Args:
        rows: returns the rows; called if they are not in the folder.
        features: the features of their columns.
        folder: the folder.
        source: where the rows are from, for errors.

    Raises:
        CorpusError: when there are no rows.
    """

    def checked() -> Iterator[dict[str, Any]]:
        row = None
        for row in rows():
            yield row
        if row is None:
            raise CorpusError(f"{source}: there are no rows, or all of them are left out")

    try:
        # The name of the folder tells the rows apart; a hash of the function, which holds open files, would not.
        return Dataset.from_generator(checked, features, str(folder), fingerprint=folder.name)
    except DatasetGenerationError as error:
        raise error.__cause__ or error from None

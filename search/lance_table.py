"""LanceDB's side of an index: its connection, its errors, and how rows get into its table and out of it."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..configuration.errors import BabelensError, MissingExtraError, SaveError, SearchIndexError
from ..inference.embedding_shards import EMBEDDING, ID
from .settings import DATABASE
from .sources import VectorSource

TABLE = "vectors"


def is_remote(address: str | Path) -> bool:
    """Whether an address is that of an object store, and not a folder."""
    return "://" in str(address)


def library() -> Any:
    """The package `lancedb`; raises MissingExtraError without it."""
    os.environ.setdefault("LANCEDB_LOG", "error")  # it warns of every cell that has no vector
    try:
        import lancedb
    except ImportError as error:
        raise MissingExtraError("an index needs LanceDB: pip install 'babelens[lance]'") from error
    return lancedb


def connect(address: str | Path) -> Any:
    """The database of an index."""
    return library().connect(str(address) if is_remote(address) else str(Path(address) / DATABASE))


def as_vectors(column: pa.ChunkedArray, width: int) -> np.ndarray:
    """A column of vectors as an array [n, width] of its own number format."""
    return column.combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, width)


def is_one_of(ids: Sequence[str]) -> str:
    """The SQL of the rows with these ids."""
    texts = ", ".join("'" + each.replace("'", "''") + "'" for each in ids)
    return f"({ID} IN ({texts}))"


@contextmanager
def rows_of(
    source: VectorSource, schema: pa.Schema, check: Callable[[list[str]], None] | None = None
) -> Iterator[pa.RecordBatchReader]:
    """The rows of a source with their vectors, for LanceDB to read; an error of the source is raised as it is.

    Args:
        source: the source.
        schema: the columns of the table.
        check: is called with the ids of each batch.
    """
    failed: list[BabelensError] = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for rows, vectors in source:
                if check is not None:
                    check(rows[ID].to_pylist())
                column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
                yield from rows.append_column(EMBEDDING, column).cast(schema).to_batches()
        except BabelensError as error:
            failed.append(error)
            raise

    try:
        yield pa.RecordBatchReader.from_batches(schema, batches())
    except BaseException as error:
        if failed and error is not failed[0]:
            raise failed[0] from error
        raise


@contextmanager
def lance_errors(address: str | Path, *, changes: bool = False) -> Iterator[None]:
    """Turns LanceDB's errors into those of babelens.

    Raises:
        SaveError: within a block that changes the index, for a disk that is full or cannot be written to.
        SearchIndexError: otherwise.
    """
    try:
        yield
    except BabelensError:
        raise
    except Exception as error:
        # What panics in LanceDB's Rust is an exception of a class that no module exports.
        if not isinstance(error, RuntimeError | ValueError | OSError) and type(error).__name__ != "RustPanic":
            raise
        if changes and "os error" in str(error):
            raise SaveError(f"{address} could not be written, and the index is as before: {error}") from error
        raise SearchIndexError(f"{address}: LanceDB failed: {error}") from error

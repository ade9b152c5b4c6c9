"""How an index is searched, what it holds and what it finds; and how it is kept: its folder, LanceDB's connection and
errors, and how rows get into its table."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..configuration.errors import BabelensError, FilterError, MissingExtraError, SaveError, SearchIndexError
from ..configuration.files import remove_unfinished
from ..configuration.locks import LOCK, locked_folder
from ..inference.embedding_shards import EMBEDDING, ID
from .sources import VectorSource

EngineName = Literal["exact", "hnsw", "ivf-pq"]

# The settings of searches that each engine reads, with their defaults.
ENGINES: dict[str, dict[str, int]] = {
    "exact": {},
    "hnsw": {"ef_search": 128, "nprobe": 64, "refine": 4},
    "ivf-pq": {"nprobe": 64, "refine": 10},
}


def check_engine(name: str) -> None:
    """Raises a SearchIndexError for an unknown engine."""
    if name not in ENGINES:
        raise SearchIndexError(f"there is no engine {name!r}; there are {', '.join(ENGINES)}")


@dataclass(frozen=True)
class SearchSettings:
    """How thoroughly an approximate engine searches: higher numbers find more and take longer.

    Args:
        ef_search: HNSW: the candidates that the walk through a graph keeps; by default 128.
        nprobe: the cells that are searched; by default 64.
        refine: how many times `top` candidates are scored again by their whole vectors; by default 4 for HNSW, and 10
            for IVF-PQ.
        exact: scan all vectors instead of the approximate search.
    """

    ef_search: int | None = None
    nprobe: int | None = None
    refine: int | None = None
    exact: bool = False

    def given(self) -> dict[str, int]:
        """The numbers that are given, by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: each for name, each in found.items() if type(each) is int}

    def of_engine(self, engine: str) -> dict[str, int]:
        """The numbers for an engine, with its defaults for those that are not given.

        Raises:
            SearchIndexError: for a number that the engine does not read, or that is below 1.
        """
        for name, number in self.given().items():
            if name not in ENGINES[engine]:
                known = ", ".join(sorted(ENGINES[engine])) or "nothing"
                raise SearchIndexError(f"the engine {engine} does not read {name}: it reads {known}")
            if number < 1:
                raise SearchIndexError(f"{name} must be at least 1, got {number}")
        return ENGINES[engine] | self.given()


DEFAULT_SETTINGS = SearchSettings()


@dataclass(frozen=True)
class Hit:
    """What a search found.

    Args:
        id: the id of the vector, such as the path of an image.
        score: the cosine of the vector and the query.
        metadata: the values of the other columns.
    """

    id: str
    score: float
    metadata: dict[str, Any]


@dataclass(frozen=True)
class IndexStat:
    """What an index holds.

    Args:
        engine: `exact`, `hnsw` or `ivf-pq`.
        vectors: the number of vectors.
        bytes: its size on disk.
        dimension, model, fingerprint: as in `embeddings.json`.
        columns: the columns of metadata with their types, which filters can name.
    """

    engine: str
    vectors: int
    bytes: int
    dimension: int
    model: str
    fingerprint: str
    columns: dict[str, str]


# ---- LanceDB ----

TABLE = "vectors"
MANIFEST, DATABASE = "index.json", "lance"
_BEGUN = "index.unfinished.json"  # becomes the manifest
_FORMAT = 2


def is_remote(address: str | Path) -> bool:
    """Whether an address is that of an object store, and not a folder."""
    return "://" in str(address)


def library() -> Any:
    """The package `lancedb`; raises MissingExtraError without it."""
    os.environ.setdefault("LANCEDB_LOG", "error")  # it warns of every cell that has no vector
    try:
        import lancedb
    except ImportError as error:
        raise MissingExtraError("an index needs LanceDB: pip install lancedb") from error
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


# In a plan of LanceDB: texts and an infinite number; in a filter, infinity and casts to floating-point numbers.
_TEXT = re.compile(r'Utf8\("[^"]*"\)')
_INFINITY, _FLOATING = re.compile(r"Float\d\d\(-?inf\)"), re.compile(r" AS Float\d\d$")
_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`""")
_NAMED_INFINITY = re.compile(r"'[+-]?inf(inity)?'", re.IGNORECASE)
_CASTS = re.compile(r"\bAS\s+(DOUBLE|FLOAT)\s*\)|::\s*(DOUBLE|FLOAT)\b", re.IGNORECASE)


def checked_filter(table: Any, where: str) -> str:
    """A filter in parentheses, after LanceDB has read it.

    Raises:
        FilterError: if it is not SQL, names an unknown column, compares values of different types, or compares what
            LanceDB would round: a number beyond those of a column with infinity, whole numbers with those of a column
            of floating-point numbers.
    """
    sql = f"({where})"
    try:
        plan = _plan(table, sql)
    except (RuntimeError, ValueError) as error:
        reason = str(error).partition(", /")[0].partition("SELECT 1 FROM")[0]  # without places in LanceDB's source
        known = str(error).partition("(sql parser error: ")[2].rstrip(")")
        hint = "; texts stand in single quotes" if '"' in where else ""
        raise FilterError(
            f"{where!r} is not a filter in SQL, such as `width > 500 AND license IN ('cc0', 'cc-by')`: "
            f"{reason}{known}{hint}"
        ) from error
    depths = accumulate({"(": 1, ")": -1}.get(each, 0) for each in _QUOTED.sub("", where))
    if min(depths, default=0) < 0:
        raise FilterError(f"{where!r} is not a filter in SQL: a parenthesis is closed that was not opened")
    if _INFINITY.search(plan) and not _NAMED_INFINITY.search(where):
        raise FilterError(f"{where!r} has a number that is larger than the numbers of its column")
    if _CASTS.search(sql):  # what the filter casts itself is cast by way of a text here, which tells it from the rest
        plan = _plan(table, _CASTS.sub(lambda it: f"AS STRING)::{it[1]}" if it[1] else f"::STRING::{it[2]}", sql))
    whole = [field.name for field in table.schema if _holds_whole_numbers(field.type)]
    for read in _read_as_floating(plan):
        for name in whole:
            if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", read):
                shown = name if name.isidentifier() else f"`{name}`"
                raise FilterError(
                    f"{where!r} compares whole numbers ({name}) with floating-point numbers, which would round them: "
                    f"write CAST({shown} AS DOUBLE) if that is what you want"
                )
    return sql


def _plan(table: Any, sql: str) -> str:
    """How LanceDB reads a filter, without the texts in it."""
    return _TEXT.sub("", table.search().where(sql).explain_plan())


def _read_as_floating(plan: str) -> Iterator[str]:
    """What a plan casts to floating-point numbers, other than texts."""
    for start in re.finditer(r"\bCAST\(", plan):
        depth, end = 1, start.end()
        while depth and end < len(plan):
            depth += {"(": 1, ")": -1}.get(plan[end], 0)
            end += 1
        inner = plan[start.end() : end - 1]
        if (kind := _FLOATING.search(inner)) and not inner[: kind.start()].endswith(" AS Utf8)"):
            yield inner[: kind.start()]


def _holds_whole_numbers(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or (pa.types.is_struct(kind) and any(_holds_whole_numbers(f.type) for f in kind))


def _with_plain_zeros(rows: pa.Table) -> pa.Table:
    """Rows whose columns have 0 for -0, which LanceDB holds for smaller where it compares two columns."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            wide = rows.column(place).cast(pa.float64())
            rows = rows.set_column(place, field, pc.add(wide, 0.0).cast(field.type))
    return rows


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
                yield from _with_plain_zeros(rows).append_column(EMBEDDING, column).cast(schema).to_batches()
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


# ---- The folder of an index ----
# It holds `lance/`, LanceDB's database, and `index.json`, which is written when it is complete.
#
# What stands in a folder without `index.json` was left by a build that was killed; the next build removes it. LanceDB
# itself makes each change of its table complete or leaves no trace of it.


def check_index(folder: Path) -> None:
    """Checks that a folder holds an index that this version reads.

    Raises:
        SearchIndexError: when the folder has none, a damaged one, or one of another version.
    """
    try:
        stated = json.loads((folder / MANIFEST).read_text("utf-8"))
        number, engine = int(stated["format"]), stated["engine"]
    except FileNotFoundError:
        raise SearchIndexError(
            f"{folder} is not an index: it has no {MANIFEST}; `babelens index build` makes one"
        ) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SearchIndexError(f"{folder / MANIFEST} is damaged: {error!r}") from error
    if number > _FORMAT or engine != "lance":
        raise SearchIndexError(
            f"{folder} is an index of another version of babelens: build it anew by `babelens index build`, from the "
            "embeddings or the images that it was built from"
        )


def check_has_no_index(folder: Path) -> None:
    """Raises SaveError for a folder that has an index."""
    if (folder / MANIFEST).is_file():
        raise SaveError(f"{folder} has an index already: add to it, or choose another folder")


@contextmanager
def new_index_folder(folder: Path) -> Iterator[None]:
    """Locks a folder for an index to be built, and marks it as complete; after an error, nothing of it is left.

    Raises:
        SaveError: when the folder has an index or other files, and when another process writes to it.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked_folder(folder):
            check_has_no_index(folder)
            remove_unfinished(folder)
            own = {LOCK, _BEGUN, DATABASE} if (folder / _BEGUN).is_file() else {LOCK}  # of a build that was killed
            if others := sorted({entry.name for entry in folder.iterdir()} - own):
                raise SaveError(f"{folder} is not an empty folder; it has {', '.join(others[:3])}: choose another one")
            shutil.rmtree(folder / DATABASE, ignore_errors=True)
            manifest = json.dumps({"format": _FORMAT, "engine": "lance"})
            (folder / _BEGUN).write_text(manifest, encoding="utf-8")
            try:
                yield
                os.replace(folder / _BEGUN, folder / MANIFEST)
            except BaseException:
                shutil.rmtree(folder / DATABASE, ignore_errors=True)
                (folder / _BEGUN).unlink(missing_ok=True)
                raise
    finally:
        if is_new and not any(folder.iterdir()):
            folder.rmdir()


def folder_bytes(folder: Path) -> int:
    """The size of the files of a folder, in which another process may write at the same time."""
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += os.stat(os.path.join(path, name)).st_size
    return size

"""How an index is built and searched, what it holds and what it finds; and the folder that holds it."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, Self

from ..configuration.errors import SaveError, SearchIndexError
from ..configuration.files import atomic_file, remove_unfinished
from ..configuration.locks import LOCK, locked_folder

EngineName = Literal["exact", "hnsw", "ivf-pq", "lance"]

# What each engine reads: of IndexParameters, and of SearchSettings with the defaults.
READS_PARAMETERS = {
    "exact": set[str](),
    "hnsw": {"neighbors", "ef_construction", "lists"},
    "ivf-pq": {"lists", "sub_vectors"},
}
READS_SETTINGS = {
    "exact": dict[str, int](),
    "hnsw": {"ef_search": 128, "nprobe": 64, "refine": 4},
    "ivf-pq": {"nprobe": 64, "refine": 10},
}


def engine_named(name: str) -> str:
    """An engine by its name; `lance` is a former name of `ivf-pq`.

    Raises:
        SearchIndexError: for an unknown engine.
    """
    name = "ivf-pq" if name == "lance" else name
    if name not in READS_SETTINGS:
        raise SearchIndexError(f"there is no engine {name!r}; there are {', '.join(READS_SETTINGS)}")
    return name


class _Numbers:
    """Numbers that can be given or left to their defaults."""

    def given(self) -> dict[str, int]:
        """The numbers that are given, by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: each for name, each in found.items() if type(each) is int}

    def check(self, engine: str, read: set[str]) -> None:
        """Checks that an engine reads the numbers that are given.

        Raises:
            SearchIndexError: for one that it does not read, and for one that is too small.
        """
        for name, number in self.given().items():
            if name not in read:
                known = ", ".join(sorted(read)) or "nothing"
                raise SearchIndexError(f"the engine {engine} does not read {name}: it reads {known}")
            least = 4 if name == "neighbors" else 1  # LanceDB builds no graph with fewer links
            if number < least:
                raise SearchIndexError(f"{name} must be at least {least}, got {number}")


@dataclass(frozen=True)
class SearchSettings(_Numbers):
    """How thoroughly an approximate engine searches: higher numbers find more and take longer.

    Args:
        ef_search: HNSW: the candidates that the walk through a graph keeps.
        nprobe: the cells that are searched.
        refine: how many times `top` candidates are scored again by their whole vectors.
        exact: scan all vectors instead of the approximate search.
    """

    ef_search: int | None = None
    nprobe: int | None = None
    refine: int | None = None
    exact: bool = False

    def over(self, defaults: dict[str, int]) -> Self:
        """These settings, and the defaults where none is given."""
        return replace(self, **{**defaults, **self.given()})  # type: ignore[arg-type]


@dataclass(frozen=True)
class IndexParameters(_Numbers):
    """How an approximate engine is built.

    Args:
        neighbors: HNSW: the links of a vector in the graph.
        ef_construction: HNSW: the candidates for these links.
        lists: the number of cells; by default, twice the square root of the number of vectors for IVF-PQ, and one for
            each million of vectors for HNSW.
        sub_vectors: IVF-PQ: the pieces of a vector that are compressed to 4 bits each, a divisor of the dimension; by
            default half of it.
        search: the settings of searches that state none.
    """

    neighbors: int | None = None
    ef_construction: int | None = None
    lists: int | None = None
    sub_vectors: int | None = None
    search: SearchSettings = SearchSettings()

    @classmethod
    def from_json(cls, stated: dict[str, Any]) -> Self:
        """The parameters that an index states."""
        return cls(**stated | {"search": SearchSettings(**stated["search"])})


DEFAULT_SETTINGS, DEFAULT_PARAMETERS = SearchSettings(), IndexParameters()


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
        settings: the settings of searches that state none.
    """

    engine: str
    vectors: int
    bytes: int
    dimension: int
    model: str
    fingerprint: str
    columns: dict[str, str]
    settings: dict[str, int]


# ---- The folder of an index ----
# It holds `lance/`, LanceDB's database, and `index.json`, which is written when it is complete.
#
# What stands in a folder without `index.json` was left by a build that was killed; the next build removes it. LanceDB
# itself makes each change of its table complete or leaves no trace of it.


MANIFEST, DATABASE = "index.json", "lance"
_FORMAT = 2


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
    if number > _FORMAT:
        raise SearchIndexError(f"{folder} is an index of format {number}, which a later version of babelens reads")
    if engine != "lance":
        raise SearchIndexError(
            f"{folder} is an index of the former engine {engine}, which this version does not read: build it again by "
            "`babelens index build`, from the embeddings or the images that it was built from"
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
            if others := sorted({entry.name for entry in folder.iterdir()} - {LOCK, DATABASE}):
                raise SaveError(f"{folder} is not an empty folder; it has {', '.join(others[:3])}: choose another one")
            shutil.rmtree(folder / DATABASE, ignore_errors=True)
            try:
                yield
                with atomic_file(folder / MANIFEST) as path:
                    path.write_text(json.dumps({"format": _FORMAT, "engine": "lance"}), encoding="utf-8")
            except BaseException:
                shutil.rmtree(folder / DATABASE, ignore_errors=True)
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

"""How an index is searched, what it holds and what it finds."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from ..configuration.errors import SearchIndexError

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

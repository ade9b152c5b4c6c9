"""The interface that all engines of an index share, and what an index states about itself.

An index holds vectors of one model with their ids and metadata. Each change of it (`build`, `add`, `delete`,
`compact`) is on disk when the method returns: all of it, or after an error or a kill, nothing of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from ..configuration.errors import InputError, ModelMismatchError, SearchIndexError
from ..configuration.identity import is_same_model
from ..inference.embedding_shards import EmbeddingsInfo
from .sources import VectorSource


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
class SearchSettings:
    """How thoroughly an approximate engine searches: higher numbers find more and take longer.

    Args:
        ef_search: HNSW: the candidates that the walk through the graph keeps.
        nprobe: IVF-PQ and LanceDB: the cells that are searched.
        refine: IVF-PQ and LanceDB: how many times `top` candidates are scored again by their whole vectors.
        exact: scan all vectors in the place of the approximate search.
    """

    ef_search: int | None = None
    nprobe: int | None = None
    refine: int | None = None
    exact: bool = False

    def over(self, defaults: "SearchSettings") -> "SearchSettings":
        """These settings, and the defaults where these have none."""
        missing = {
            field.name: getattr(defaults, field.name) for field in fields(self) if getattr(self, field.name) is None
        }
        return replace(self, **missing)

    def given(self) -> list[str]:
        """The names of the numbers that are set."""
        return [name for name, value in asdict(self).items() if name != "exact" and value is not None]


@dataclass(frozen=True)
class IndexParameters:
    """How an approximate engine is built.

    Args:
        neighbors: HNSW: the links of a vector in each layer of the graph; twice as many in the lowest.
        ef_construction: HNSW: the candidates for these links.
        lists: IVF-PQ and LanceDB: the number of cells; by default twice the square root of the number of vectors.
        sub_vectors: IVF-PQ and LanceDB: the pieces of a vector that are compressed to 4 bits each, a divisor of the
            dimension; by default half of it.
        search: the settings of searches that state none.
    """

    neighbors: int | None = None
    ef_construction: int | None = None
    lists: int | None = None
    sub_vectors: int | None = None
    search: SearchSettings = SearchSettings()

    def given(self) -> list[str]:
        """The names of the numbers that are set."""
        return [name for name, value in asdict(self).items() if name != "search" and value is not None]


DEFAULT_SETTINGS, DEFAULT_PARAMETERS = SearchSettings(), IndexParameters()


@dataclass(frozen=True)
class IndexStat:
    """What an index holds.

    Args:
        engine: `exact`, `hnsw`, `ivf-pq` or `lance`.
        vectors: the number of vectors that a search can find.
        deleted: the number of deleted vectors that still take space, until the index is compacted.
        bytes: its size on disk.
        dimension, model, fingerprint: as in `embeddings.json`.
        columns: the columns of metadata with their types, which filters can name.
        settings: the settings of searches that state none.
    """

    engine: str
    vectors: int
    deleted: int
    bytes: int
    dimension: int
    model: str
    fingerprint: str
    columns: dict[str, str]
    settings: dict[str, int]


class VectorIndex(ABC):
    """An index of vectors; `babelens.search.open_index` and `build_index` choose the class by the engine."""

    engine: ClassVar[str]
    reads_parameters: ClassVar[set[str]] = set()
    reads_settings: ClassVar[set[str]] = set()
    info: EmbeddingsInfo
    schema: pa.Schema  # of `id` and the metadata
    parameters: IndexParameters

    @classmethod
    @abstractmethod
    def build(
        cls, address: str | Path, source: VectorSource, parameters: IndexParameters = DEFAULT_PARAMETERS
    ) -> Self:
        """Makes an index of all vectors of a source.

        Args:
            address: a folder that does not exist, or is empty; LanceDB also takes the address of an object store.
            source: the vectors.
            parameters: how the engine is built.

        Raises:
            SaveError: if there is an index already, another process builds one there, or the disk is full.
            SearchIndexError: for parameters that this engine does not read, and for a source without vectors.
            InputError: as `VectorSource`.
        """

    @classmethod
    @abstractmethod
    def open(cls, address: str | Path) -> Self:
        """Opens an index.

        Raises:
            SearchIndexError: when there is none, or a damaged one.
        """

    @abstractmethod
    def add(self, source: VectorSource) -> int:
        """Adds all vectors of a source, and returns their number.

        Raises:
            ModelMismatchError: when another model computed them.
            InputError: as `VectorSource`, and for an id that the index has already.
            SearchIndexError: when their metadata has other columns than the index.
            SaveError: if another process writes to the index, or the disk is full.
        """

    @abstractmethod
    def delete(self, ids: Sequence[str] = (), *, where: str | None = None) -> int:
        """Deletes the vectors with these ids and those that fit a filter, and returns their number.

        Raises:
            InputError: for an id that the index does not have; then nothing is deleted.
            FilterError: for a filter that cannot be read.
            SaveError: if another process writes to the index, or the disk is full.
        """

    @abstractmethod
    def compact(self) -> None:
        """Writes the index anew without what was deleted, and with all that was added in one piece.

        An index of which all is deleted stays as it is.
        """

    @abstractmethod
    def search(
        self,
        queries: np.ndarray,
        top: int = 10,
        *,
        where: str | None = None,
        settings: SearchSettings = DEFAULT_SETTINGS,
    ) -> list[list[Hit]]:
        """The vectors nearest to each query, nearest first; fewer than `top` when fewer fit the filter.

        Args:
            queries: vectors of length 1, [n_queries, d], of the model that computed the index.
            top: how many vectors to find for a query.
            where: only vectors whose metadata fit this filter (`babelens.search.filters`).
            settings: how thoroughly to search.

        Raises:
            ModelMismatchError: for queries of another width.
            FilterError: for a filter that cannot be read.
            SearchIndexError: for settings that this engine does not read.
        """

    @abstractmethod
    def sample(self, count: int, seed: int = 0) -> np.ndarray:
        """Vectors of the index chosen at random, float32 [n, d]: `count`, or all when there are fewer."""

    @abstractmethod
    def vectors(self) -> VectorSource:
        """All vectors with their ids and metadata, as a source for another index."""

    @abstractmethod
    def stat(self) -> IndexStat:
        """What the index holds."""

    def save(self, address: str | Path, engine: "type[VectorIndex] | None" = None) -> "VectorIndex":
        """Writes a copy, without what was deleted, of the same engine or of another one; returns the copy."""
        if engine is None:
            return self.build(address, self.vectors(), self.parameters)
        return engine.build(address, self.vectors())

    def check_model(self, fingerprint: str, called: str) -> None:
        """Checks that embeddings are of the model of this index.

        Args:
            fingerprint: that of the model that computed them.
            called: what the error message calls the model.

        Raises:
            ModelMismatchError: for another model.
        """
        if not is_same_model(self.info.fingerprint, fingerprint, f"the index of {self.info.model}"):
            raise ModelMismatchError(
                f"the index has embeddings of {self.info.model} ({self.info.fingerprint}), and {called} is another "
                f"model or another version of it ({fingerprint}): their embeddings are not comparable"
            )

    def _check_source(self, source: VectorSource) -> None:
        self.check_model(source.info.fingerprint, f"{source.info.model} of {source.called}")
        if source.schema != self.schema:
            raise SearchIndexError(
                f"{source.called} has the columns {_columns(source.schema)}; the index has {_columns(self.schema)}"
            )

    def _check_query(self, queries: np.ndarray, top: int, settings: SearchSettings) -> np.ndarray:
        queries = np.asarray(queries, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.info.dimension:
            raise ModelMismatchError(
                f"queries of this index are vectors of {self.info.dimension} dimensions, [n, {self.info.dimension}]; "
                f"the shape of these is {list(queries.shape)}"
            )
        if not np.isfinite(queries).all():
            raise InputError("a query has a value that is not finite")
        if top < 1:
            raise InputError(f"top must be at least 1, got {top}")
        self._check_read(settings, self.reads_settings)
        return queries

    @classmethod
    def _check_parameters(cls, parameters: IndexParameters) -> None:
        cls._check_read(parameters, cls.reads_parameters)
        cls._check_read(parameters.search, cls.reads_settings)

    @classmethod
    def _check_read(cls, numbers: SearchSettings | IndexParameters, read: set[str]) -> None:
        given = numbers.given()
        if unread := sorted(set(given) - read):
            reads = f"it reads {', '.join(sorted(read))}" if read else "it has nothing to set"
            raise SearchIndexError(f"the engine {cls.engine} does not read {', '.join(unread)}: {reads}")
        for name in given:
            least = 2 if name == "neighbors" else 1  # a graph with one link of each vector leads nowhere
            if getattr(numbers, name) < least:
                raise SearchIndexError(f"{name} must be at least {least}, got {getattr(numbers, name)}")


def default_lists(vectors: int) -> int:
    """The number of cells of an inverted file: each is trained on at least 40 vectors."""
    return max(1, min(round(2 * vectors**0.5), vectors // 40))


def sub_vectors(dimension: int, wanted: int | None) -> int:
    """The number of pieces that vectors are cut into: a divisor of the dimension.

    Raises:
        SearchIndexError: for a number that is none.
    """
    if wanted is None:
        return dimension // 2 if dimension % 2 == 0 else dimension
    if wanted < 1 or dimension % wanted:
        raise SearchIndexError(f"sub_vectors must be a divisor of the dimension {dimension}, got {wanted}")
    return wanted


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)

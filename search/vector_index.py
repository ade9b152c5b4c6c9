"""An index of vectors with their ids and metadata, in a table of LanceDB.

It is a folder, or any address that LanceDB takes (`s3://bucket/index`, `gs://…`, `az://…`). Its vectors are float16
and of one model. The engine `exact` scans all of them. From some ten thousand vectors on, `ivf-pq` and `hnsw` search
the nearest cells, and score candidates again by their whole vectors; vectors that were added are scanned until the
index is compacted. Each change is on disk when its method returns: all of it, or after an error or a kill, nothing.
"""

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..configuration.errors import InputError, ModelMismatchError, SaveError, SearchIndexError
from ..configuration.files import errors_naming
from ..configuration.identity import is_same_model
from ..configuration.locks import locked_folder
from ..configuration.redaction import redact
from ..inference.embedding_shards import EMBEDDING, ID, EmbeddingsInfo
from ..inference.similarity import best_first
from .lance_table import (
    DEFAULT_SETTINGS,
    TABLE,
    EngineName,
    Hit,
    IndexStat,
    SearchSettings,
    as_vectors,
    check_engine,
    check_index,
    checked_filter,
    connect,
    folder_bytes,
    is_one_of,
    is_remote,
    lance_errors,
    new_index_folder,
    rows_of,
)
from .sources import Batch, VectorSource

_FACTS = b"babelens"
_SCORE, _QUERY = "_distance", "query_index"
_SCANNED = 50_000  # fewer vectors are found as fast without cells
_IDS_AT_ONCE = 4096
_SPARE, _MOST_SPARE = 16, 64  # candidates beside those that are wanted; how many times more there may be
_ROUNDS, _SAMPLE_RATE = 10, 64
_LINKS, _LINK_CANDIDATES = 20, 150  # of a vector in the graph of HNSW
_KEPT_VERSIONS = timedelta(hours=1)  # for processes that still search an earlier one


def build_index(address: str | Path, source: VectorSource, engine: EngineName = "exact") -> "VectorIndex":
    """Makes an index of all vectors of a source.

    Args:
        address: a folder that does not exist, or is empty; or the address of an object store.
        source: the vectors.
        engine: `exact`, `ivf-pq` or `hnsw`.

    Raises:
        SaveError: if there is an index already, another process builds one there, or the disk is full.
        SearchIndexError: for an unknown engine, and a source without vectors.
        InputError: as `VectorSource`.
        MissingExtraError: without LanceDB.

    Examples:
        >>> index = build_index("photos.index", embeddings_source(Path("photos-embedded")), "ivf-pq")
    """
    check_engine(engine)
    info = replace(source.info, dtype="float16")
    facts = json.dumps({"engine": engine, "info": redact(asdict(info))})
    vectors = pa.field(EMBEDDING, pa.list_(pa.float16(), info.dimension))
    schema = source.schema.append(vectors).with_metadata({_FACTS: facts})
    place: Any = nullcontext() if is_remote(address) else new_index_folder(Path(address))
    with errors_naming(address), place, lance_errors(address, changes=True):
        database = connect(address)
        if TABLE in database.list_tables().tables:
            raise SaveError(f"{address} has an index already: add to it, or choose another address")
        with rows_of(source, schema) as reader:
            table = database.create_table(TABLE, reader, schema=schema)
        if not table.count_rows():
            database.drop_table(TABLE)
            raise SearchIndexError(f"{source.called} has no vectors to search")
        index = VectorIndex(address, table)
        index._make_cells()
    return index


def open_index(address: str | Path) -> "VectorIndex":
    """Opens the index in a folder, or at an address that LanceDB takes.

    Raises:
        SearchIndexError: when there is none, a damaged one, or one of another version.
        MissingExtraError: without LanceDB.
    """
    if not is_remote(address):
        check_index(Path(address))
    try:
        with lance_errors(address):
            return VectorIndex(address, connect(address).open_table(TABLE))
    except (SearchIndexError, KeyError, TypeError) as error:
        raise SearchIndexError(
            f"{address} holds no index of LanceDB, or a damaged one: {error.__cause__ or error}"
        ) from error


class VectorIndex:
    """An index; `build_index` and `open_index` make it.

    Args:
        address: the folder, or the address.
        table: LanceDB's table.

    Attributes:
        engine: `exact`, `ivf-pq` or `hnsw`.
        info: the model that computed the vectors, and their width.
        schema: the columns `id` and metadata.
    """

    def __init__(self, address: str | Path, table: Any) -> None:
        self.address, self._table = address, table
        facts = json.loads(table.schema.metadata[_FACTS])
        former = {"lance": "ivf-pq"}  # as earlier versions called it, or did not, when there was no other
        engine = facts.get("engine", "lance")
        self.engine, self.info = former.get(engine, engine), EmbeddingsInfo(**facts["info"])
        self.schema = pa.schema([field for field in table.schema if field.name != EMBEDDING])

    # ---- Changes ----

    def add(self, source: VectorSource) -> int:
        """Adds all vectors of a source, and returns their number.

        Raises:
            ModelMismatchError: when another model computed them.
            InputError: as `VectorSource`, and for an id that the index has already.
            SearchIndexError: when their metadata has other columns than the index.
            SaveError: if another process writes to the index, or the disk is full.
        """
        self.check_model(source.info.fingerprint, f"{source.info.model} of {source.called}")
        if source.schema != self.schema:
            columns = [
                ", ".join(f"{field.name} ({field.type})" for field in each) for each in (source.schema, self.schema)
            ]
            raise SearchIndexError(f"{source.called} has the columns {columns[0]}; the index has {columns[1]}")

        def refuse_known(ids: list[str]) -> None:
            for start in range(0, len(ids), _IDS_AT_ONCE):
                if known := self._known(ids[start : start + _IDS_AT_ONCE]):
                    raise InputError(f"{source.called}: the index has the id {min(known)} already; delete it first")

        with self._changing():
            before = self._table.count_rows()
            with rows_of(source, self._table.schema, refuse_known) as reader:
                self._table.add(reader)
            return self._table.count_rows() - before

    def delete(self, ids: Sequence[str] = (), *, where: str | None = None) -> int:
        """Deletes the vectors with these ids and those that fit a filter, and returns their number.

        Raises:
            InputError: for an id that the index does not have; then nothing is deleted.
            FilterError: for a filter that LanceDB does not take.
            SaveError: if another process writes to the index, or the disk is full.
        """
        filters = [] if where is None else [checked_filter(self._table, where)]
        with self._changing():
            for start in range(0, len(ids), _IDS_AT_ONCE):
                chunk = list(dict.fromkeys(ids[start : start + _IDS_AT_ONCE]))
                known = self._known(chunk)
                if missing := [each for each in chunk if each not in known]:
                    raise InputError(f"{self.address} has no vector with the id {missing[0]!r}")
                filters.append(is_one_of(chunk))
            before = self._table.count_rows()
            if filters:
                self._table.delete(" OR ".join(filters))
            return before - self._table.count_rows()

    def compact(self) -> None:
        """Writes the index anew without what was deleted, and with cells for all that was added.

        Files of earlier versions are removed when they are an hour old, so that searches that run can end.
        """
        with self._changing():
            self._table.optimize(cleanup_older_than=_KEPT_VERSIONS)
            self._make_cells()

    def save(self, address: str | Path, engine: EngineName | None = None) -> "VectorIndex":
        """Writes a copy, without what was deleted, with the same engine or another one; returns the copy."""
        return build_index(address, self.vectors(), engine or self.engine)

    # ---- Searching ----

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
            where: only vectors whose metadata fit this filter, in SQL as LanceDB takes it.
            settings: how thoroughly to search.

        Raises:
            ModelMismatchError: for queries of another width.
            FilterError: for a filter that LanceDB does not take.
            SearchIndexError: for settings that this engine does not read.
        """
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
        chosen = settings.of_engine(self.engine)
        sql = None if where is None else checked_filter(self._table, where)
        with lance_errors(self.address):
            return [self._nearest(query, top, sql, None if settings.exact else chosen) for query in queries]

    def _nearest(self, query: np.ndarray, top: int, sql: str | None, settings: dict[str, int] | None) -> list[Hit]:
        """The vectors nearest to a query among those that a filter keeps; without settings, or where the engine reads
        none, by a scan."""
        rows = self._table.count_rows()
        # LanceDB rounds a query to float16: a score is off by at most this much, and near ones are ordered otherwise.
        rounding = 2 * float(np.linalg.norm(query - query.astype(np.float16).astype(np.float32))) + 1e-6
        limit = max(1, min(top + _SPARE, rows))
        while True:
            search = self._table.search(query, vector_column_name=EMBEDDING).distance_type("dot").limit(limit)
            if sql is not None:
                search = search.where(sql, prefilter=True)
            if not settings:
                search = search.bypass_vector_index()
            else:  # there are no more cells and candidates than vectors
                search = search.nprobes(max(1, min(settings["nprobe"], rows)))
                refine = max(1, min(settings["refine"], math.ceil(rows / limit)))
                search = search.refine_factor(refine)
                if "ef_search" in settings:  # HNSW, which keeps no fewer than are scored again
                    search = search.ef(max(limit * refine, min(settings["ef_search"], rows)))
            found = search.select([*self.schema.names, EMBEDDING, _SCORE]).to_arrow()
            scores = as_vectors(found[EMBEDDING], self.info.dimension).astype(np.float32) @ query
            best = best_first(scores, top)
            if settings:
                if len(found) >= min(top, rows):
                    break
                settings = None  # what a filter keeps may lie in other cells
            else:
                is_all = len(found) < limit or limit == rows
                # Beyond that, there are so many copies of an image that any of them will do.
                if is_all or scores[best[-1]] > scores.min() + rounding or limit >= _MOST_SPARE * (top + _SPARE):
                    break
                limit = min(4 * limit, rows)  # one that was left out may be nearer than these
        values = found.select(self.schema.names).take(best).to_pylist()
        return [Hit(row.pop(ID), float(score), row) for row, score in zip(values, scores[best], strict=True)]

    # ---- What it holds ----

    def sample(self, count: int, seed: int = 0) -> np.ndarray:
        """Vectors of the index chosen at random, float32 [n, d]: `count`, or all when there are fewer."""
        total = self._table.count_rows()
        chosen = np.random.default_rng(seed).choice(total, min(count, total), replace=False)
        with lance_errors(self.address):
            table = self._table.take_offsets(np.sort(chosen).tolist()).select([EMBEDDING]).to_arrow()
        return as_vectors(table[EMBEDDING], self.info.dimension).astype(np.float32)

    def vectors(self) -> VectorSource:
        """All vectors with their ids and metadata, as a source for another index."""

        def read() -> Iterator[Batch]:
            with lance_errors(self.address):
                for batch in self._table.search().to_batches():
                    rows = pa.Table.from_batches([batch])
                    yield rows.select(self.schema.names), as_vectors(rows[EMBEDDING], self.info.dimension)

        return VectorSource(self.info, self.schema, read, str(self.address))

    def stat(self) -> IndexStat:
        """What the index holds."""
        is_folder = not is_remote(self.address)
        return IndexStat(
            self.engine,
            self._table.count_rows(),
            folder_bytes(Path(self.address)) if is_folder else self._table.stats()["total_bytes"],
            self.info.dimension,
            self.info.model,
            self.info.fingerprint,
            {field.name: str(field.type) for field in self.schema if field.name != ID},
        )

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

    # ---- LanceDB ----

    def _make_cells(self) -> None:
        """Indexes the ids, and for an approximate engine many vectors, where that has not been done."""
        from lancedb.index import BTree, HnswSq, IvfPq

        indexed = {column for each in self._table.list_indices() for column in each.columns}
        if ID not in indexed:
            self._table.create_index(ID, config=BTree())
        count, width = self._table.count_rows(), self.info.dimension
        if self.engine == "exact" or EMBEDDING in indexed or count < _SCANNED:
            return
        cells: dict[str, Any] = {"distance_type": "dot", "max_iterations": _ROUNDS, "sample_rate": _SAMPLE_RATE}
        config: Any
        if self.engine == "ivf-pq":  # each cell is trained on at least 40 vectors
            lists = max(1, min(round(2 * count**0.5), count // 40))
            pieces = width // 2 if width % 2 == 0 else width
            config = IvfPq(num_partitions=lists, num_sub_vectors=pieces, num_bits=4, **cells)
        else:
            config = HnswSq(m=_LINKS, ef_construction=_LINK_CANDIDATES, **cells)
        self._table.create_index(EMBEDDING, config=config)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Around a change; at an address, LanceDB itself refuses changes that contradict each other."""
        lock: Any = nullcontext() if is_remote(self.address) else locked_folder(Path(self.address))
        with errors_naming(self.address, "the index is as before"), lock, lance_errors(self.address, changes=True):
            self._table.checkout_latest()
            yield

    def _known(self, ids: Sequence[str]) -> set[str]:
        """Those of some ids that the index has."""
        return set(self._table.search().where(is_one_of(ids)).select([ID]).to_arrow()[ID].to_pylist())

"""The engine `lance`: LanceDB, for more vectors than fit in memory or on one disk.

The index is a folder, or any address that LanceDB takes (`s3://bucket/index`, `gs://…`, `az://…`). LanceDB keeps
versions of its table: each change is a new one, and is there as a whole or not at all. From some ten thousand vectors
on, a search reads the cells of an IVF-PQ index that are nearest, and scores candidates again by their whole vectors;
below, it scans all. Vectors that were added are scanned until the index is compacted.
"""

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from ..configuration.errors import BabelensError, InputError, MissingExtraError, SaveError, SearchIndexError
from ..configuration.files import errors_naming
from ..inference.embedding_shards import EMBEDDING, ID
from ..inference.exact_scan import best_first
from .filters import Filter, parse_filter
from .index_folder import (
    Manifest,
    changed_index,
    folder_bytes,
    from_json,
    new_index_folder,
    read_manifest,
    write_manifest,
)
from .sources import Batch, VectorSource
from .vector_index import (
    DEFAULT_PARAMETERS,
    DEFAULT_SETTINGS,
    Hit,
    IndexParameters,
    IndexStat,
    SearchSettings,
    VectorIndex,
    default_lists,
    sub_vectors,
)

_DATABASE, _TABLE, _FACTS = "lance", "vectors", b"babelens"
_SCORE, _QUERY = "_distance", "query_index"
_SCANNED = 50_000  # fewer vectors are found as fast without cells
_IDS_AT_ONCE = 4096
_SPARE = 16  # candidates beside those that are wanted
_ROUNDS, _SAMPLE_RATE = 10, 64
_KEPT_VERSIONS = timedelta(hours=1)  # for processes that still search an earlier one


def is_remote(address: str | Path) -> bool:
    """Whether an address is that of an object store, and not a folder."""
    return "://" in str(address)


class LanceIndex(VectorIndex):
    """An index in a table of LanceDB.

    Args:
        address: the folder, or the address.
        table: LanceDB's table.
    """

    engine = "lance"
    reads_parameters = {"lists", "sub_vectors"}
    reads_settings = {"nprobe", "refine"}
    _NPROBE, _REFINE = 64, 10

    def __init__(self, address: str | Path, table: Any) -> None:
        self.address = address
        self._table = table
        facts = from_json(json.loads(table.schema.metadata[_FACTS]))
        self.info, self.parameters = facts["info"], facts["parameters"]
        self.schema = pa.schema([field for field in table.schema if field.name != EMBEDDING])

    @classmethod
    def build(
        cls, address: str | Path, source: VectorSource, parameters: IndexParameters = DEFAULT_PARAMETERS
    ) -> Self:
        cls._check_parameters(parameters)
        sub_vectors(source.info.dimension, parameters.sub_vectors)
        info = replace(source.info, dtype="float16")
        facts = json.dumps({"info": asdict(info), "parameters": asdict(parameters)})
        vectors = pa.field(EMBEDDING, pa.list_(pa.float16(), info.dimension))
        schema = source.schema.append(vectors).with_metadata({_FACTS: facts})
        place: AbstractContextManager[Any] = nullcontext() if is_remote(address) else new_index_folder(Path(address))
        with errors_naming(address), place:
            with _lance_errors(address):
                database = _connect(address)
                has_table = _TABLE in _names(database)
            if has_table:
                raise SaveError(f"{address} has an index already: add to it, or choose another address")
            with _lance_errors(address), _reading(source, schema) as reader:
                table = database.create_table(_TABLE, reader, schema=schema)
            if not table.count_rows():
                database.drop_table(_TABLE)
                raise SearchIndexError(f"{source.called} has no vectors to search")
            index = cls(address, table)
            with _lance_errors(address):
                index._make_cells()
            if not is_remote(address):
                write_manifest(Path(address), Manifest(cls.engine, info, parameters, change=1))
        return index

    @classmethod
    def open(cls, address: str | Path) -> Self:
        if not is_remote(address):
            manifest = read_manifest(Path(address))
            if manifest.engine != cls.engine:
                raise SearchIndexError(f"{address} is an index of the engine {manifest.engine}, not {cls.engine}")
        try:
            return cls(address, _connect(address).open_table(_TABLE))
        except MissingExtraError:
            raise
        except (ValueError, RuntimeError, OSError, KeyError, TypeError) as error:
            raise SearchIndexError(f"{address} holds no index of LanceDB, or a damaged one: {error}") from error

    def add(self, source: VectorSource) -> int:
        self._check_source(source)
        with self._changing():
            before = self._table.count_rows()
            with _lance_errors(self.address), _reading(source, self._table.schema, self._refuse_known) as reader:
                self._table.add(reader)
            return self._table.count_rows() - before

    def delete(self, ids: Sequence[str] = (), *, where: str | None = None) -> int:
        filters = [] if where is None else [parse_filter(where, self.schema).sql]
        with self._changing():
            for start in range(0, len(ids), _IDS_AT_ONCE):
                chunk = list(dict.fromkeys(ids[start : start + _IDS_AT_ONCE]))
                among = self._among(chunk)
                known = self._known(among)
                if missing := [each for each in chunk if each not in known]:
                    raise InputError(f"{self.address} has no vector with the id {missing[0]}")
                filters.append(among.sql)
            if not filters:
                return 0
            before = self._table.count_rows()
            with _lance_errors(self.address):
                self._table.delete(" OR ".join(filters))
            return before - self._table.count_rows()

    def compact(self) -> None:
        with self._changing(), _lance_errors(self.address):
            self._table.optimize(cleanup_older_than=_KEPT_VERSIONS)
            self._make_cells()

    def search(
        self,
        queries: np.ndarray,
        top: int = 10,
        *,
        where: str | None = None,
        settings: SearchSettings = DEFAULT_SETTINGS,
    ) -> list[list[Hit]]:
        queries = self._check_query(queries, top, settings)
        if not len(queries):
            return []
        settings = settings.over(self.parameters.search)
        sql = None if where is None else parse_filter(where, self.schema).sql
        found = self._found(queries, top, sql, settings)
        if not settings.exact:
            # What a filter keeps may lie in other cells.
            short = [number for number, hits in enumerate(found) if len(hits) < top]
            scanned = self._found(queries[short], top, sql, SearchSettings(exact=True)) if short else []
            for number, hits in zip(short, scanned, strict=True):
                found[number] = hits
        return found

    def _found(self, queries: np.ndarray, top: int, sql: str | None, settings: SearchSettings) -> list[list[Hit]]:
        """The vectors nearest to each query among those that a filter keeps."""
        with _lance_errors(self.address):
            rows = self._table.count_rows()
            limit = max(1, min(top + _SPARE, rows))
            query = self._table.search(queries, vector_column_name=EMBEDDING).distance_type("dot").limit(limit)
            if sql is not None:
                query = query.where(sql, prefilter=True)
            if settings.exact:
                query = query.bypass_vector_index()
            else:  # there are no more cells and candidates than vectors
                nprobe, refine = settings.nprobe or self._NPROBE, settings.refine or self._REFINE
                query = query.nprobes(max(1, min(nprobe, rows)))
                query = query.refine_factor(max(1, min(refine, math.ceil(rows / limit))))
            found = query.select([*self.schema.names, EMBEDDING, _SCORE]).to_arrow()
        of_query = found[_QUERY].to_numpy() if _QUERY in found.schema.names else np.zeros(len(found), dtype=int)
        vectors = _array(found[EMBEDDING], self.info.dimension).astype(np.float32)
        return [
            self._hits(found.select(self.schema.names), vectors, np.flatnonzero(of_query == number), query_vector, top)
            for number, query_vector in enumerate(queries)
        ]

    def _hits(self, rows: pa.Table, vectors: np.ndarray, among: np.ndarray, query: np.ndarray, top: int) -> list[Hit]:
        """The best `top` of some rows: LanceDB rounds queries to float16, so that it orders near ones otherwise."""
        scores = vectors[among] @ query
        best = best_first(scores, top)
        values = rows.take(among[best]).to_pylist()
        return [Hit(row.pop(ID), float(score), row) for row, score in zip(values, scores[best], strict=True)]

    def sample(self, count: int, seed: int = 0) -> np.ndarray:
        total = self._table.count_rows()
        chosen = np.random.default_rng(seed).choice(total, min(count, total), replace=False)
        with _lance_errors(self.address):
            table = self._table.take_offsets(np.sort(chosen).tolist()).select([EMBEDDING]).to_arrow()
        return _array(table[EMBEDDING], self.info.dimension).astype(np.float32)

    def vectors(self) -> VectorSource:
        return VectorSource(self.info, self.schema, self._batches, str(self.address))

    def stat(self) -> IndexStat:
        local = not is_remote(self.address)
        search = self.parameters.search
        return IndexStat(
            self.engine,
            self._table.count_rows(),
            0,
            folder_bytes(Path(self.address)) if local else self._table.stats()["total_bytes"],
            self.info.dimension,
            self.info.model,
            self.info.fingerprint,
            {field.name: str(field.type) for field in self.schema if field.name != ID},
            {"nprobe": search.nprobe or self._NPROBE, "refine": search.refine or self._REFINE},
        )

    def _batches(self) -> Iterator[Batch]:
        with _lance_errors(self.address):
            for batch in self._table.search().to_batches():
                rows = pa.Table.from_batches([batch])
                yield rows.select(self.schema.names), _array(rows[EMBEDDING], self.info.dimension)

    def _make_cells(self) -> None:
        """Indexes the ids, and from some number of vectors on these too, where that has not been done."""
        from lancedb.index import BTree, IvfPq

        indexed = {column for each in self._table.list_indices() for column in each.columns}
        if ID not in indexed:
            self._table.create_index(ID, config=BTree())
        if EMBEDDING not in indexed and (count := self._table.count_rows()) >= _SCANNED:
            cells = IvfPq(
                distance_type="dot",
                num_partitions=self.parameters.lists or default_lists(count),
                num_sub_vectors=sub_vectors(self.info.dimension, self.parameters.sub_vectors),
                num_bits=4,
                max_iterations=_ROUNDS,
                sample_rate=_SAMPLE_RATE,
            )
            self._table.create_index(EMBEDDING, config=cells)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Around a change; of an address, LanceDB itself refuses changes that contradict each other."""
        lock = nullcontext() if is_remote(self.address) else changed_index(Path(self.address))
        with errors_naming(self.address, "the index is as before"), lock:
            self._table.checkout_latest()
            yield

    def _among(self, ids: Sequence[str]) -> Filter:
        texts = ", ".join("'" + each.replace("'", "''") + "'" for each in ids)
        return Filter(None, f"{ID} IN ({texts})")

    def _known(self, among: Filter) -> set[str]:
        with _lance_errors(self.address):
            return set(self._table.search().where(among.sql).select([ID]).to_arrow()[ID].to_pylist())

    def _refuse_known(self, ids: list[str], called: str) -> None:
        for start in range(0, len(ids), _IDS_AT_ONCE):
            if known := self._known(self._among(ids[start : start + _IDS_AT_ONCE])):
                raise InputError(f"{called}: the index has the id {min(known)} already; delete it first")


def _connect(address: str | Path) -> Any:
    os.environ.setdefault("LANCEDB_LOG", "error")  # it warns of every cell that has no vector
    try:
        import lancedb
    except ImportError as error:
        raise MissingExtraError("the engine lance needs LanceDB: pip install babelens[lance]") from error
    return lancedb.connect(str(address) if is_remote(address) else str(Path(address) / _DATABASE))


def _names(database: Any) -> list[str]:
    return list(database.list_tables().tables)


def _array(column: pa.ChunkedArray, width: int) -> np.ndarray:
    return column.combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, width)


@contextmanager
def _reading(source: VectorSource, schema: pa.Schema, check: Any = None) -> Iterator[pa.RecordBatchReader]:
    """The rows of a source with their vectors, for LanceDB to read; an error of the source is raised as it is."""
    failed: list[BabelensError] = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for rows, vectors in source:
                if check is not None:
                    check(rows[ID].to_pylist(), source.called)
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
def _lance_errors(address: str | Path) -> Iterator[None]:
    """Turns LanceDB's errors into those of babelens."""
    try:
        yield
    except BabelensError:
        raise
    except (RuntimeError, ValueError, OSError) as error:
        raise SearchIndexError(f"{address}: LanceDB failed: {error}") from error

"""Vectors with their rows in memory-mapped files: what the exact engine and faiss's have in common.

The vectors are float16, 2 bytes a number; the rows, ids and metadata, are an Arrow file. Both are mapped into memory,
so that opening an index reads nothing, and a search what it needs. Deleted vectors are listed by their positions,
until the index is compacted.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ..configuration.errors import FilterError, InputError, SearchIndexError
from ..configuration.files import atomic_file, atomic_folder, errors_naming
from ..inference.embedding_shards import ID
from ..inference.exact_scan import scan
from .filters import parse_filter
from .index_folder import (
    Manifest,
    changed_index,
    folder_bytes,
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
)

_VECTORS, _ROWS = "vectors.f16", "rows.arrow"
_ROWS_AT_ONCE = 16_384
_ATTEMPTS = 3


class StoredVectorsIndex(VectorIndex):
    """An index whose vectors are in a folder; its subclasses choose how they are searched.

    Args:
        folder: the folder.
        manifest: what its `index.json` states.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self.info = manifest.info
        self.parameters = manifest.parameters
        parts = [_Part(folder / name, rows, self.info.dimension) for name, rows in manifest.rows.items()]
        self._arrays = [part.vectors for part in parts]
        self._rows = pa.concat_tables([part.rows for part in parts])
        self._starts = np.cumsum([0, *manifest.rows.values()])
        self.schema = self._rows.schema.remove_metadata()
        self._alive: np.ndarray | None = None
        if manifest.deleted:
            self._alive = np.ones(len(self._rows), dtype=bool)
            try:
                self._alive[np.load(folder / manifest.deleted, allow_pickle=False)] = False
            except (ValueError, EOFError, IndexError) as error:
                raise SearchIndexError(f"{folder / manifest.deleted} is damaged: {error}") from error

    # ---- What an engine adds ----

    def _write_graph(self, before: Manifest | None) -> str | None:
        """Writes what the engine searches besides the vectors, and returns the name of the part; None without any.

        Args:
            before: the index before rows were added, whose part is extended; None to begin anew.
        """
        return None

    @abstractmethod
    def _nearest(
        self, queries: np.ndarray, top: int, keep: np.ndarray | None, settings: SearchSettings
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """The positions of the nearest vectors of those to `keep`, with their scores, for each query."""

    # ---- Changes ----

    @classmethod
    def build(
        cls, address: str | Path, source: VectorSource, parameters: IndexParameters = DEFAULT_PARAMETERS
    ) -> Self:
        cls._check_parameters(parameters)
        folder = Path(address)
        with errors_naming(folder), new_index_folder(folder):
            empty = Manifest(cls.engine, replace(source.info, dtype="float16"), parameters)
            name, rows = _write_part(folder, empty, source)
            if not rows:
                raise SearchIndexError(f"{source.called} has no vectors to search")
            manifest = replace(empty, rows={name: rows}, change=1)
            manifest = replace(manifest, graph=cls(folder, manifest)._write_graph(None))
            write_manifest(folder, manifest)
        return cls(folder, manifest)

    @classmethod
    def open(cls, address: str | Path) -> Self:
        folder = Path(address)
        for attempt in range(_ATTEMPTS):
            manifest = read_manifest(folder)
            if manifest.engine != cls.engine:
                raise SearchIndexError(f"{folder} is an index of the engine {manifest.engine}, not {cls.engine}")
            try:
                return cls(folder, manifest)
            except FileNotFoundError as error:
                # Another process may have replaced the parts since `index.json` was read.
                if attempt + 1 == _ATTEMPTS or read_manifest(folder) == manifest:
                    raise SearchIndexError(f"{folder} is damaged: {error}") from error
        raise AssertionError("the last attempt returns or raises")

    def add(self, source: VectorSource) -> int:
        self._check_source(source)
        with errors_naming(self.folder, "the index is as before"), changed_index(self.folder) as manifest:
            before = type(self)(self.folder, manifest)
            name, rows = _write_part(self.folder, manifest, source)
            if rows:
                added = _Part(self.folder / name, rows, self.info.dimension).rows[ID]
                before._refuse_known(added, source.called)
                whole = replace(manifest, rows={**manifest.rows, name: rows})
                whole = replace(whole, graph=type(self)(self.folder, whole)._write_graph(manifest))
                write_manifest(self.folder, replace(whole, change=manifest.change + 1))
        self._read_again()
        return rows

    def delete(self, ids: Sequence[str] = (), *, where: str | None = None) -> int:
        with errors_naming(self.folder, "the index is as before"), changed_index(self.folder) as manifest:
            now = type(self)(self.folder, manifest)
            gone = np.zeros(len(now._rows), dtype=bool)
            if ids:
                gone |= now._with_ids(ids)
            if where is not None:
                gone |= now._fitting(where)
            if now._alive is not None:
                gone &= now._alive
            if count := int(gone.sum()):
                dead = gone if now._alive is None else gone | ~now._alive
                name = manifest.new_part("deleted")
                with atomic_file(self.folder / name) as path, path.open("wb") as file:
                    np.save(file, np.flatnonzero(dead))
                write_manifest(self.folder, replace(manifest, deleted=name, change=manifest.change + 1))
        self._read_again()
        return count

    def compact(self) -> None:
        with errors_naming(self.folder, "the index is as before"), changed_index(self.folder) as manifest:
            now = type(self)(self.folder, manifest)
            is_empty = now._alive is not None and not now._alive.any()
            if not is_empty and (manifest.deleted or len(manifest.rows) > 1):
                name, rows = _write_part(self.folder, manifest, now.vectors())
                whole = replace(manifest, rows={name: rows}, deleted=None, graph=None)
                whole = replace(whole, graph=type(self)(self.folder, whole)._write_graph(None))
                write_manifest(self.folder, replace(whole, change=manifest.change + 1))
        self._read_again()

    def _read_again(self) -> None:
        self.__dict__.update(vars(self.open(self.folder)))

    # ---- Reading ----

    def search(
        self,
        queries: np.ndarray,
        top: int = 10,
        *,
        where: str | None = None,
        settings: SearchSettings = DEFAULT_SETTINGS,
    ) -> list[list[Hit]]:
        queries = self._check_query(queries, top, settings)
        keep = self._alive
        if where is not None:
            fitting = self._fitting(where)
            keep = fitting if keep is None else fitting & keep
        if settings.exact:
            found = scan(self._arrays, queries, top, keep)
        else:
            found = self._nearest(queries, top, keep, settings.over(self.parameters.search))
        return [
            [self._hit(int(position), float(score)) for position, score in zip(*each, strict=True)] for each in found
        ]

    def sample(self, count: int, seed: int = 0) -> np.ndarray:
        positions = np.arange(len(self._rows)) if self._alive is None else np.flatnonzero(self._alive)
        if count < len(positions):
            positions = np.sort(np.random.default_rng(seed).choice(positions, count, replace=False))
        return self._at(positions)

    def vectors(self) -> VectorSource:
        return VectorSource(self.info, self.schema, self._batches, str(self.folder))

    def stat(self) -> IndexStat:
        deleted = 0 if self._alive is None else int((~self._alive).sum())
        return IndexStat(
            self.engine,
            len(self._rows) - deleted,
            deleted,
            folder_bytes(self.folder),
            self.info.dimension,
            self.info.model,
            self.info.fingerprint,
            {field.name: str(field.type) for field in self.schema if field.name != ID},
            self._default_settings(),
        )

    def _default_settings(self) -> dict[str, int]:
        return {}

    def _at(self, positions: np.ndarray) -> np.ndarray:
        """The vectors at these positions, float32 [n, d]."""
        found = np.empty((len(positions), self.info.dimension), dtype=np.float32)
        parts = np.searchsorted(self._starts, positions, side="right") - 1
        for part in np.unique(parts):
            among = parts == part
            found[among] = self._arrays[part][positions[among] - self._starts[part]]
        return found

    def _batches(self) -> Iterator[Batch]:
        for array, start in zip(self._arrays, self._starts, strict=False):
            for first in range(0, len(array), _ROWS_AT_ONCE):
                vectors = array[first : first + _ROWS_AT_ONCE]
                rows = self._rows.slice(int(start) + first, len(vectors))
                if self._alive is not None:
                    alive = self._alive[start + first : start + first + len(vectors)]
                    rows, vectors = rows.filter(pa.array(alive)), vectors[alive]
                yield rows, vectors

    def _hit(self, position: int, score: float) -> Hit:
        row = self._rows.slice(position, 1).to_pylist()[0]
        return Hit(row.pop(ID), score, row)

    def _fitting(self, where: str) -> np.ndarray:
        """Which rows fit a filter, bool [n]."""
        expression = parse_filter(where, self.schema).arrow
        try:
            keep = ds.dataset(self._rows).scanner(columns={"keep": expression}).to_table()["keep"]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:  # two columns, and what is in them
            raise FilterError(f"{where!r} compares columns whose values cannot be compared: {error}") from error
        return pc.fill_null(keep, False).to_numpy()

    def _with_ids(self, ids: Sequence[str]) -> np.ndarray:
        """Which rows have one of these ids, bool [n]."""
        try:
            found = pc.is_in(self._rows[ID], value_set=pa.array(ids, pa.string())).to_numpy()
        except UnicodeEncodeError as error:  # the name of a file that is not UTF-8
            raise InputError(f"{self.folder} has no vector with the id {error.object!r}: it is not Unicode") from error
        if self._alive is not None:
            found &= self._alive
        if found.sum() < len(set(ids)):
            known = set(self._rows.filter(pa.array(found))[ID].to_pylist())
            raise InputError(
                f"{self.folder} has no vector with the id {next(each for each in ids if each not in known)}"
            )
        return found

    def _refuse_known(self, ids: pa.ChunkedArray, called: str) -> None:
        known = pc.is_in(self._rows[ID], value_set=ids.combine_chunks()).to_numpy()
        if self._alive is not None:
            known &= self._alive
        if known.any():
            first = self._rows[ID][int(np.argmax(known))].as_py()
            raise InputError(f"{called}: the index has the id {first} already; delete it first")


class _Part:
    """The vectors and the rows of one part, mapped into memory."""

    def __init__(self, folder: Path, rows: int, dimension: int) -> None:
        file = folder / _VECTORS
        if file.stat().st_size != rows * dimension * 2:
            raise SearchIndexError(
                f"{file} is damaged: it has {file.stat().st_size} bytes, not {rows * dimension * 2}"
            )
        self.vectors = np.memmap(file, dtype=np.float16, mode="r", shape=(rows, dimension))
        try:
            self.rows = pa.ipc.open_file(pa.memory_map(str(folder / _ROWS))).read_all()
        except pa.ArrowInvalid as error:
            raise SearchIndexError(f"{folder / _ROWS} is damaged: {error}") from error
        if len(self.rows) != rows:
            raise SearchIndexError(f"{folder / _ROWS} is damaged: it has {len(self.rows)} rows, not {rows}")


def _write_part(folder: Path, manifest: Manifest, source: VectorSource) -> tuple[str, int]:
    """Writes the vectors and the rows of a source; returns the name of the part and the number of rows."""
    name, count = manifest.new_part("rows"), 0
    with (
        atomic_folder(folder / name) as part,
        (part / _VECTORS).open("wb") as vectors_file,
        pa.OSFile(str(part / _ROWS), "wb") as rows_file,
        pa.ipc.new_file(rows_file, source.schema) as writer,
    ):
        for rows, vectors in source:
            vectors_file.write(vectors.data)
            writer.write_table(rows)
            count += len(rows)
    return name, count

"""The engines `hnsw` and `ivf-pq` of faiss, for up to tens of millions of vectors: approximate, and faster by far.

HNSW (Malkov & Yashunin 2016, arXiv 1603.09320) walks through a graph of neighbours, and holds the graph and the
vectors in memory. IVF-PQ (Jégou et al. 2011) searches some cells of a partition by compressed vectors, which alone are
in memory. What either finds is scored again by the whole vectors, which stay on disk, mapped into memory: scores are
those of the exact engine. A filter that keeps few vectors is answered by a scan of these, which is exact.
"""

from abc import abstractmethod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from ..configuration.errors import MissingExtraError, SearchIndexError
from ..configuration.files import atomic_file
from ..inference.exact_scan import best_first, scan
from .index_folder import Manifest
from .stored_vectors import StoredVectorsIndex
from .vector_index import SearchSettings, default_lists, sub_vectors

# A scan of so many vectors takes some milliseconds, and less than an approximate search for few vectors among many.
_SCANNED = 20_000
# The cells and the codes are trained on so many vectors for each cell, in so many rounds.
_SAMPLE_PER_LIST, _LEAST_SAMPLE, _ROUNDS = 64, 16_384, 10
_CODES = 16  # of 4 bits; faiss trains them on as many vectors or more


def import_faiss() -> ModuleType:
    """The library.

    Raises:
        MissingExtraError: without `babelens[faiss]`.
    """
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("the engines hnsw and ivf-pq need faiss: pip install babelens[faiss]") from error
    return faiss


class FaissIndex(StoredVectorsIndex):
    """An index that faiss searches."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        super().__init__(folder, manifest)
        self._faiss = import_faiss()
        self._loaded: Any = None
        # Mapped at once, as the rows are: a later change of the index deletes the file.
        self._file: Any = pa.memory_map(str(folder / manifest.graph)) if manifest.graph else None

    @abstractmethod
    def _new_graph(self) -> Any:
        """faiss's index without vectors, trained."""

    @abstractmethod
    def _search_parameters(self, settings: SearchSettings, share: float, selector: Any) -> Any:
        """faiss's parameters of a search among a share of all vectors."""

    def _graph(self) -> Any:
        """faiss's index, read when it is first used."""
        if self._loaded is None:
            file = self.folder / str(self.manifest.graph)
            try:
                self._loaded = self._faiss.read_index(self._faiss.PyCallbackIOReader(self._file.read))
            except RuntimeError as error:
                raise SearchIndexError(f"{file} is damaged: {error}") from error
            if self._loaded.ntotal != len(self._rows):
                raise SearchIndexError(
                    f"{file} is damaged: it has {self._loaded.ntotal} vectors, not {len(self._rows)}"
                )
            self._file = None
        return self._loaded

    def _write_graph(self, before: Manifest | None) -> str | None:
        graph = self._new_graph() if before is None else type(self)(self.folder, before)._graph()
        known = graph.ntotal
        for start, array in zip(self._starts, self._arrays, strict=False):
            for first in range(max(0, known - int(start)), len(array), _SCANNED):
                graph.add(array[first : first + _SCANNED].astype(np.float32))
        name = (before or self.manifest).new_part("graph")
        with atomic_file(self.folder / name) as path:
            try:
                self._faiss.write_index(graph, str(path))
            except RuntimeError as error:  # which is how faiss reports a full disk
                raise OSError(str(error)) from error
        return name

    def _nearest(
        self, queries: np.ndarray, top: int, keep: np.ndarray | None, settings: SearchSettings
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        kept = len(self._rows) if keep is None else int(keep.sum())
        if kept <= max(_SCANNED, top):
            return scan(self._arrays, queries, top, keep)
        selector = None if keep is None else self._faiss.IDSelectorBitmap(np.packbits(keep, bitorder="little"))
        parameters = self._search_parameters(settings, kept / len(self._rows), selector)
        wanted = min(kept, top * (settings.refine or 1))
        _, candidates = self._graph().search(queries, wanted, params=parameters)
        found = [self._scored(query, each[each >= 0], top) for query, each in zip(queries, candidates, strict=True)]
        # What a filter keeps may lie where a search for this query does not come.
        short = [number for number, (positions, _) in enumerate(found) if len(positions) < min(top, kept)]
        if short:
            for number, scanned in zip(short, scan(self._arrays, queries[short], top, keep), strict=True):
                found[number] = scanned
        return found

    def _scored(self, query: np.ndarray, positions: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
        """The best `top` of these positions by their whole vectors, with their scores."""
        positions = np.sort(positions)
        scores = self._at(positions) @ query
        order = best_first(scores, top)
        return positions[order], scores[order]


class HnswIndex(FaissIndex):
    """An index whose vectors are found by a walk through a graph."""

    engine = "hnsw"
    reads_parameters = {"neighbors", "ef_construction"}
    reads_settings = {"ef_search"}
    _NEIGHBORS, _EF_CONSTRUCTION, _EF_SEARCH = 32, 128, 128

    def _new_graph(self) -> Any:
        faiss = self._faiss
        graph = faiss.IndexHNSWSQ(
            self.info.dimension,
            faiss.ScalarQuantizer.QT_fp16,  # as the vectors are on disk: nothing is lost
            self.parameters.neighbors or self._NEIGHBORS,
            faiss.METRIC_INNER_PRODUCT,
        )
        graph.hnsw.efConstruction = self.parameters.ef_construction or self._EF_CONSTRUCTION
        graph.train(self._at(np.arange(1)))
        return graph

    def _default_settings(self) -> dict[str, int]:
        return {"ef_search": self.parameters.search.ef_search or self._EF_SEARCH}

    def _search_parameters(self, settings: SearchSettings, share: float, selector: Any) -> Any:
        # The walk meets all vectors, and keeps those of the filter.
        ef_search = (settings.ef_search or self._EF_SEARCH) / share
        return self._faiss.SearchParametersHNSW(sel=selector, efSearch=min(round(ef_search), len(self._rows)))


class IvfPqIndex(FaissIndex):
    """An index whose vectors are compressed, and found in the cells nearest to the query."""

    engine = "ivf-pq"
    reads_parameters = {"lists", "sub_vectors"}
    reads_settings = {"nprobe", "refine"}
    _NPROBE, _REFINE = 64, 10

    def _new_graph(self) -> Any:
        faiss = self._faiss
        width, rows = self.info.dimension, len(self._rows)
        lists = self.parameters.lists or default_lists(rows)
        pieces = sub_vectors(width, self.parameters.sub_vectors)
        sample = self.sample(max(_LEAST_SAMPLE, _SAMPLE_PER_LIST * lists))
        if lists > len(sample):
            raise SearchIndexError(f"{lists} lists cannot be trained on {len(sample)} vectors: choose fewer")
        # Codes of 4 bits are trained and searched many times as fast as those of 8 bits.
        graph = faiss.index_factory(width, f"IVF{lists},PQ{pieces}x4fs", faiss.METRIC_INNER_PRODUCT)
        graph.cp.niter = graph.pq.cp.niter = _ROUNDS
        graph.cp.min_points_per_centroid = graph.pq.cp.min_points_per_centroid = 1  # no warning for a small index
        graph.train(np.resize(sample, (max(len(sample), _CODES), width)))
        return graph

    def _default_settings(self) -> dict[str, int]:
        search = self.parameters.search
        return {"nprobe": search.nprobe or self._NPROBE, "refine": search.refine or self._REFINE}

    def _search_parameters(self, settings: SearchSettings, share: float, selector: Any) -> Any:
        nprobe = (settings.nprobe or self._NPROBE) / share
        return self._faiss.SearchParametersIVF(sel=selector, nprobe=min(round(nprobe), self._graph().nlist))

    def _nearest(
        self, queries: np.ndarray, top: int, keep: np.ndarray | None, settings: SearchSettings
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        return super()._nearest(queries, top, keep, settings.over(SearchSettings(refine=self._REFINE)))

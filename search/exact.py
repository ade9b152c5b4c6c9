"""The engine `exact`: a scan of all vectors, whose results are those of brute force.

A search reads every vector once, 2 bytes a number, from memory or from the disk. What it finds is exact, with any
filter; nothing is trained, and adding and deleting cost what is added and deleted.
"""

import numpy as np

from ..inference.exact_scan import scan
from .stored_vectors import StoredVectorsIndex
from .vector_index import SearchSettings


class ExactIndex(StoredVectorsIndex):
    """An index that is searched by a scan of all of its vectors."""

    engine = "exact"

    def _nearest(
        self, queries: np.ndarray, top: int, keep: np.ndarray | None, settings: SearchSettings
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        return scan(self._arrays, queries, top, keep)

"""Search by a scan of all vectors: exact, with numpy alone, in blocks that need little memory.

The scores are dot products, which are the cosines of vectors of length 1. Vectors with the same score come in the
order of their positions, so that the same search finds the same vectors every time.
"""

from collections.abc import Iterable

import numpy as np

# A block of float32 that stays in the cache of a processor is multiplied several times as fast as one in memory.
_BYTES_AT_ONCE = 2**22
# float16 has 10 bits of fraction and 5 of exponent, float32 23 and 8: shifted by 13 bits, the fields of a float16 lie
# in those of a float32, whose exponent is then counted from -127 and not from -15.
_SHIFT = 13
_SIGN_AND_FIELDS = np.int32(np.uint32(0x8FFFE000).view(np.int32))
_EXPONENTS = np.float32(2.0 ** (127 - 15))


def best_first(scores: np.ndarray, top: int) -> np.ndarray:
    """The positions of the `top` highest scores [n], highest first; equal scores in the order of their positions."""
    if top < len(scores):
        threshold = np.partition(scores, -top)[-top]
        candidates = np.flatnonzero(scores >= threshold)
    else:
        candidates = np.arange(len(scores))
    return candidates[np.argsort(-scores[candidates], kind="stable")[:top]]


def scan(
    vectors: Iterable[np.ndarray], queries: np.ndarray, top: int, keep: np.ndarray | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The `top` vectors with the highest dot products for each query.

    Args:
        vectors: arrays [n_i, d] of float16 or float32, one after the other, such as memory-mapped files.
        queries: float32 [n_queries, d].
        top: how many vectors to find for a query.
        keep: which vectors count, bool [n], over all arrays; by default all.

    Returns:
        For each query the positions of the vectors, counted over all arrays, and their scores, float32, best first.
        There are fewer than `top` where fewer vectors count.
    """
    found = [_Best(top) for _ in queries]
    queries = np.ascontiguousarray(queries, dtype=np.float32)
    start = 0
    for array in vectors:
        rows = max(1, _BYTES_AT_ONCE // (4 * array.shape[1]))
        for first in range(0, len(array), rows):
            block = array[first : first + rows]
            positions = np.arange(start + first, start + first + len(block))
            if keep is not None:
                positions = positions[keep[positions]]
                block = block[positions - start - first]
            for best, scores in zip(found, _dot_products(block, queries), strict=True):
                best.add(scores, positions)
        start += len(array)
    return [best.sorted() for best in found]


def _dot_products(block: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The dot products of queries [n_queries, d] with the vectors of a block [n, d]: float32 [n_queries, n]."""
    if block.dtype == np.float16:
        return (queries * _EXPONENTS) @ _shifted(block).T
    return queries @ block.T


def _shifted(block: np.ndarray) -> np.ndarray:
    """A block of finite float16 as float32, divided by 2 ** 112: several times as fast as numpy's own conversion.

    Queries that are multiplied by 2 ** 112 give the same dot products with it, to the bit, as all factors are powers
    of two.
    """
    bits = block.view(np.int16).astype(np.int32)
    np.left_shift(bits, _SHIFT, out=bits)
    np.bitwise_and(bits, _SIGN_AND_FIELDS, out=bits)
    return bits.view(np.float32)


class _Best:
    """The best vectors so far, of one query."""

    def __init__(self, top: int) -> None:
        self.top = top
        self.positions = np.empty(0, dtype=np.int64)
        self.scores = np.empty(0, dtype=np.float32)
        self.threshold = -np.inf

    def add(self, scores: np.ndarray, positions: np.ndarray) -> None:
        """Takes the scores of vectors at later positions than those before, [n] and [n]."""
        better = np.flatnonzero(scores > self.threshold)  # an equal score at a later position does not count
        if not len(better):
            return
        self.positions = np.concatenate([self.positions, positions[better]])
        self.scores = np.concatenate([self.scores, scores[better]])
        if len(self.scores) > self.top:
            chosen = np.sort(best_first(self.scores, self.top))  # in the order of positions
            self.positions, self.scores = self.positions[chosen], self.scores[chosen]
            self.threshold = self.scores.min()

    def sorted(self) -> tuple[np.ndarray, np.ndarray]:
        order = best_first(self.scores, self.top)
        return self.positions[order], self.scores[order]

"""The scan of all vectors."""

import numpy as np
import pytest

from babelens.inference.exact_scan import best_first, scan


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_scan_in_blocks_is_brute_force(dtype, monkeypatch):
    monkeypatch.setattr("babelens.inference.exact_scan._BYTES_AT_ONCE", 4 * 24 * 7)
    random = np.random.default_rng(0)
    vectors = random.standard_normal((100, 24)).astype(dtype)
    vectors[60] = vectors[3]  # a tie, which the first position wins
    queries = random.standard_normal((4, 24), dtype=np.float32)
    queries[0] = vectors[3]
    scores = queries @ vectors.astype(np.float32).T
    keep = random.random(100) < 0.5
    for mask in (None, keep, np.zeros(100, dtype=bool)):
        kept = np.arange(100) if mask is None else np.flatnonzero(mask)
        for row, (positions, found) in zip(scores, scan([vectors[:33], vectors[33:]], queries, 9, mask), strict=True):
            expected = kept[np.argsort(-row[kept], kind="stable")[:9]]
            assert positions.tolist() == expected.tolist()
            np.testing.assert_allclose(found, row[expected], rtol=1e-5, atol=1e-6)


def test_every_float16_is_scored_by_its_own_value():
    """Subnormal ones included: the bits of a float16 are read as those of a float32."""
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    every = every[np.isfinite(every)]
    (found,) = scan([every[:, None]], np.ones((1, 1), dtype=np.float32), len(every))
    values = np.empty(len(every), dtype=np.float32)
    values[found[0]] = found[1]
    np.testing.assert_array_equal(values, every.astype(np.float32))


def test_the_best_of_equal_scores_are_the_first():
    scores = np.array([1, 3, 2, 3, 3, 0], dtype=np.float32)
    assert [best_first(scores, top).tolist() for top in (1, 2, 4, 9)] == [
        [1],
        [1, 3],
        [1, 3, 4, 2],
        [1, 3, 4, 2, 0, 5],
    ]

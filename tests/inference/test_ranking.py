"""The order of search results."""

import numpy as np

from babelens.inference.similarity import best_first


def test_the_best_of_equal_scores_are_the_first():
    scores = np.array([1, 3, 2, 3, 3, 0], dtype=np.float32)
    assert [best_first(scores, top).tolist() for top in (1, 2, 4, 9)] == [
        [1],
        [1, 3],
        [1, 3, 4, 2],
        [1, 3, 4, 2, 0, 5],
    ]

"""Rows that are evenly spread over many."""

from itertools import pairwise

import pytest

from babelens.data.corpus.sampling import evenly_spread


@pytest.mark.parametrize(
    ("size", "count", "indices"),
    [(10, 4, [0, 2, 5, 7]), (3, 3, [0, 1, 2]), (2, 5, [0, 1]), (0, 4, []), (5, 1, [0]), (7, 0, [])],
)
def test_indices_are_at_even_distances(size, count, indices):
    assert evenly_spread(size, count) == indices


def test_distances_differ_by_one_at_most():
    indices = evenly_spread(1911, 100)
    distances = {after - before for before, after in pairwise(indices)}
    assert len(set(indices)) == 100 and distances == {19, 20}

"""What an approximate engine finds of what the exact scan finds, measured on an index itself."""

import numpy as np

from ..configuration.errors import SearchIndexError
from .settings import DEFAULT_SETTINGS, SearchSettings
from .vector_index import VectorIndex


def measured_recall(
    index: VectorIndex,
    settings: SearchSettings = DEFAULT_SETTINGS,
    *,
    top: int = 10,
    samples: int = 200,
    seed: int = 0,
) -> float:
    """The share of the `top` nearest vectors that a search finds, the mean over vectors of the index as queries.

    A query does not count as its own neighbour. Queries by text lie farther from the images than these do from each
    other, and may find less: measure with queries of one's own, by `SearchSettings(exact=True)`, where it matters.

    Args:
        index: the index.
        settings: how thoroughly to search.
        top: how many neighbours count.
        samples: the number of queries.
        seed: chooses the queries.

    Raises:
        SearchIndexError: for an index whose vectors are all deleted.
    """
    queries = index.sample(samples, seed)
    if not len(queries):
        raise SearchIndexError("recall cannot be measured: the index has no vectors")
    exact = index.search(queries, top + 1, settings=SearchSettings(exact=True))
    found = index.search(queries, top + 1, settings=settings)
    shares = []
    for query_exact, query_found in zip(exact, found, strict=True):
        # The query itself is the nearest of all, or one of several equal ones.
        right = [hit.id for hit in query_exact[1:]]
        shares.append(len(set(right) & {hit.id for hit in query_found}) / len(right) if right else 1.0)
    return float(np.mean(shares))

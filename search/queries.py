"""Queries by texts, in several languages at once, and by images."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..configuration.errors import InputError
from .lance_table import DEFAULT_SETTINGS, Hit, SearchSettings
from .vector_index import VectorIndex

if TYPE_CHECKING:
    from ..inference.embedder import Embedder, ImageLike
from ..configuration.errors import SearchIndexError

Merge = Literal["mean", "max"]


def search_index(
    index: VectorIndex,
    embedder: "Embedder",
    texts: Sequence[str] = (),
    *,
    language: str | Sequence[str] = (),
    images: "Sequence[ImageLike]" = (),
    merge: Merge = "mean",
    top: int = 10,
    where: str | None = None,
    settings: SearchSettings = DEFAULT_SETTINGS,
) -> list[Hit]:
    """The vectors nearest to one thing that is searched for, described by texts and images.

    Args:
        index: the index.
        embedder: the model that computed it.
        texts: descriptions, such as one in German and its French translation.
        language: the BCP-47 tag of all texts, or one for each.
        images: images to find similar ones of.
        merge: the score of a vector: the mean of its cosines with all texts and images, or the highest of them.
        top, where, settings: as in `VectorIndex.search`.

    Returns:
        What was found, best first.

    Raises:
        InputError: without a text and an image.
        ModelKindError: for an encoder of texts alone.
        ModelMismatchError: when the embedder has another model than the index.
        FilterError, SearchIndexError: as `VectorIndex.search`.

    Examples:
        >>> search_index(index, embedder, ["ein rotes Auto", "une voiture rouge"], language=["de", "fr"])
    """
    from ..configuration.identity import index_identity
    from ..inference.similarity import first_dimensions

    if not texts and not len(images):
        raise InputError("a search needs a text or an image")
    embedder.check_takes_images()  # others have no space in which texts and images meet
    index.check_model(
        index_identity(embedder.model, embedder.processor),
        getattr(embedder.model, "name_or_path", "") or type(embedder.model).__name__,
    )
    parts = [embedder.encode_text(texts, language=language)] if texts else []
    parts += [embedder.encode_image(images)] if len(images) else []
    queries = np.concatenate(parts)
    if (
        queries.shape[1] > index.info.dimension
    ):  # its embeddings were cut (`truncate_dim`), and are those of this model
        queries = first_dimensions(queries, index.info.dimension)
    return search_merged(index, queries, merge=merge, top=top, where=where, settings=settings)


def search_merged(
    index: VectorIndex,
    queries: np.ndarray,
    *,
    merge: Merge = "mean",
    top: int = 10,
    where: str | None = None,
    settings: SearchSettings = DEFAULT_SETTINGS,
) -> list[Hit]:
    """The vectors with the best scores for several queries together; arguments as in `search_index`.

    With `mean`, this is one search with the mean of the queries [n_queries, d], as a dot product is linear. With
    `max`, it is a search with each of them: a vector among the best by its highest score is among the best of the
    query that it has that score with.
    """
    if merge == "mean":
        return index.search(queries.mean(axis=0, keepdims=True), top, where=where, settings=settings)[0]
    best: dict[str, Hit] = {}
    for hits in index.search(queries, top, where=where, settings=settings):
        for hit in hits:
            if hit.id not in best or best[hit.id].score < hit.score:
                best[hit.id] = hit
    return sorted(best.values(), key=lambda hit: -hit.score)[:top]


# ---- What an approximate engine finds of what the exact scan finds, measured on an index itself ----


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

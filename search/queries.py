"""Queries by texts, in several languages at once, and by images."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..configuration.errors import InputError
from .settings import DEFAULT_SETTINGS, Hit, SearchSettings
from .vector_index import VectorIndex

if TYPE_CHECKING:
    from ..inference.embedder import Embedder, ImageLike

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
    from ..inference.fingerprint import image_fingerprint

    if not texts and not len(images):
        raise InputError("a search needs a text or an image")
    embedder.check_takes_images()  # others have no space in which texts and images meet
    index.check_model(
        image_fingerprint(embedder.model, embedder.processor),
        f"{embedder.model.name_or_path or type(embedder.model).__name__}",
    )
    parts = [embedder.encode_text(texts, language=language)] if texts else []
    parts += [embedder.encode_image(images)] if len(images) else []
    return search_merged(index, np.concatenate(parts), merge=merge, top=top, where=where, settings=settings)


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

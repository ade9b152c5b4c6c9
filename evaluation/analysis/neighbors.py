"""The nearest neighbors of a query: images, and captions in every language, as numbers and as a gallery."""

from collections.abc import Sequence
from dataclasses import dataclass

import datasets
import numpy as np

from ...configuration.errors import ModelKindError
from ...configuration.languages import normalize_language, normalize_languages
from ...data.batching.retrieval_sets import RetrievalSets
from ...data.batching.views import Images, images_of
from ...inference.embedder import Embedder
from ...inference.gallery import GalleryRow


@dataclass(frozen=True)
class Neighbor:
    """An image or a caption near to the query.

    Args:
        image_id: the image, or the image that the caption describes.
        row: its row in the corpus.
        score: the cosine of its embedding and the query's.
        text: the caption; null for an image.
    """

    image_id: str
    row: int
    score: float
    text: str | None = None


@dataclass(frozen=True)
class Neighbors:
    """The nearest neighbors of a query.

    Args:
        query: the text.
        language: its BCP-47 tag.
        image_id: the image that the query describes; null where it is none of the corpus.
        images: the nearest images, nearest first.
        captions: language -> the nearest captions in it, nearest first.
    """

    query: str
    language: str
    image_id: str | None
    images: list[Neighbor]
    captions: dict[str, list[Neighbor]]


def nearest_neighbors(
    embedder: Embedder,
    corpus: datasets.Dataset,
    query: str,
    language: str,
    *,
    languages: str | list[str] | tuple[str, ...],
    image_id: str | None = None,
    top: int = 8,
    show_progress: bool | None = None,
) -> Neighbors:
    """Finds the images and the captions of a corpus that are nearest to a query.

    Args:
        embedder: the model.
        corpus: a caption corpus.
        query, language: a text and its BCP-47 tag.
        languages: the languages whose captions are searched.
        image_id: the image that the query describes, where it is one of the corpus. Its caption with the words of the
            query is left out of the captions in the query's own language.
        top: how many neighbors.
        show_progress: as in `Embedder.encode_text`.

    Raises:
        LanguageTagError: for an unknown language.
        CorpusError: when the corpus has no caption in one of the languages, or is a stream.
        BadImageError: for an image that cannot be read.
    """
    language = normalize_language(language)
    of_corpus = RetrievalSets(corpus)
    sets = {tag: of_corpus.of(tag) for tag in normalize_languages(languages)}
    embedding = embedder.encode_text([query], language=language, show_progress=False)[0]
    cosines = embedder.encode_image(images_of(corpus), show_progress=show_progress) @ embedding
    ids = list(corpus["image_id"])
    captions = {}
    for tag, queries in sets.items():
        scores = embedder.encode_text(queries.texts, language=tag, show_progress=show_progress) @ embedding
        if tag == language:
            itself = [pair == (query, image_id) for pair in zip(queries.texts, queries.text_image_ids, strict=True)]
            scores = np.where(itself, -np.inf, scores)
        captions[tag] = [
            Neighbor(
                queries.text_image_ids[best], queries.text_to_images[best][0], float(scores[best]), queries.texts[best]
            )
            for best in _best(scores, top)
            if np.isfinite(scores[best])
        ]
    images = [Neighbor(ids[best], best, float(cosines[best])) for best in _best(cosines, top)]
    return Neighbors(query, language, image_id, images, captions)


def neighbor_rows(neighbors: Neighbors, corpus: datasets.Dataset) -> list[GalleryRow]:
    """The neighbors as the rows of a gallery: the nearest images, and for each language the images that its nearest
    captions describe, with the nearest one. Images that the query describes are right ones.

    Args:
        neighbors: the neighbors.
        corpus: the corpus that they are from.

    Raises:
        ModelKindError: for a corpus of features in the place of images.
        BadImageError: for an image that cannot be read.
    """
    images = images_of(corpus)
    if not isinstance(images, Images):
        raise ModelKindError("a gallery shows images, and the corpus has features in their place")

    def row(text: str, language: str, found: Sequence[Neighbor], heading: str | None) -> GalleryRow:
        return GalleryRow(
            query=text,
            language=language,
            images=[images[each.row] for each in found],
            scores=[each.score for each in found],
            right=[each.image_id == neighbors.image_id for each in found],
            heading=heading,
        )

    rows = [row(neighbors.query, neighbors.language, neighbors.images, "Nearest images")]
    heading: str | None = "Images of the nearest captions in each language, with the nearest one"
    for language, found in neighbors.captions.items():
        if found:
            rows.append(row(found[0].text or "", language, found, heading))
            heading = None
    return rows


def _best(scores: np.ndarray, top: int) -> list[int]:
    return [int(index) for index in np.argsort(-scores, kind="stable")[:top]]

"""Results of several models for the same queries, one below the other: texts as queries for images (figures 4, 5 and 9
to 11 of MURAL's paper, figure 1 of MLA's), and images as queries for texts (figures 6 and 12 to 14 of MURAL's).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import datasets
import numpy as np

from ...data.batching.retrieval_sets import RetrievalSets
from ...data.batching.views import images_of
from ...inference.embedder import Embedder
from ...utils.errors import InputError
from ...utils.languages import normalize_languages
from ..ranking import embedding_ranks

Direction = Literal["text-to-image", "image-to-text"]


@dataclass(frozen=True)
class Found:
    """The results of a model for a query.

    Args:
        candidates: the indices of the best images (rows of the corpus) or texts, best first.
        names: their `image_id`, or the texts.
        right: whether each is correct.
        rank: the rank of the best correct candidate, from 1; ties count against the model.
    """

    candidates: list[int]
    names: list[str]
    right: list[bool]
    rank: int


@dataclass(frozen=True)
class ComparedQuery:
    """A query and the results of each model.

    Args:
        language: the BCP-47 tag of the texts.
        query: the text, or the `image_id` of the image.
        row: the row of the query's image in the corpus.
        found: the name of each model -> its results.
    """

    language: str
    query: str
    row: int
    found: dict[str, Found]


@dataclass(frozen=True)
class SideBySide:
    """The results of several models for the same queries.

    Args:
        direction: `text-to-image` or `image-to-text`.
        queries: the selected queries.
        first: language -> model -> R@1 over all queries, in percent.
    """

    direction: Direction
    queries: list[ComparedQuery]
    first: dict[str, dict[str, float]]


def side_by_side(
    embedders: Mapping[str, Embedder],
    corpus: datasets.Dataset,
    languages: str | list[str] | tuple[str, ...],
    *,
    direction: Direction = "text-to-image",
    queries: int = 3,
    top: int = 5,
    differing: bool = False,
    show_progress: bool | None = None,
) -> SideBySide:
    """Searches a caption corpus with several models, and returns their results for some queries in each language.

    Args:
        embedders: the models by name.
        corpus: a caption corpus.
        languages: BCP-47 tags.
        direction: `text-to-image`, or `image-to-text` (texts in the same language).
        queries: the number of queries in each language, selected by a hash of their image, independently of the
            results.
        top: the number of candidates for each query.
        differing: whether to select only queries that some models, but not all, answer correctly in first place.
        show_progress: as in `Embedder.encode_image`.
    """
    if not embedders:
        raise InputError("there are no models to compare")
    of_corpus = RetrievalSets(corpus)
    images = {
        name: embedder.encode_image(images_of(corpus), show_progress=show_progress)
        for name, embedder in embedders.items()
    }
    result = SideBySide(direction, [], {})
    for language in normalize_languages(languages):
        of_language = of_corpus.of(language)
        right, names = of_language.text_to_images, of_language.image_ids
        image_of = np.array([own[0] for own in right])  # for each query
        rows = np.arange(len(right))
        if direction == "image-to-text":
            texts_of: dict[int, list[int]] = {}
            for text, own in enumerate(of_language.text_to_images):
                for image in own:
                    texts_of.setdefault(image, []).append(text)
            right, names = list(texts_of.values()), of_language.texts
            image_of = rows = np.array(list(texts_of))
        ranks, scores = {}, {}
        for name, embedder in embedders.items():
            texts = embedder.encode_text(of_language.texts, language=language, show_progress=show_progress)
            own_images = images[name][of_language.rows]
            found = embedding_ranks(own_images, texts, of_language.text_to_images)
            ranks[name] = found.text_to_image if direction == "text-to-image" else found.image_to_text[rows]
            scores[name] = (texts, own_images) if direction == "text-to-image" else (own_images, texts)
        result.first[language] = {name: 100 * float((each == 1).mean()) for name, each in ranks.items()}
        for index in _chosen(ranks, [of_language.image_ids[image] for image in image_of], queries, differing):
            shown = {}
            for name, (asking, asked) in scores.items():
                best = np.argsort(-(asking[rows[index]] @ asked.T), kind="stable")[:top].tolist()
                marks = [each in right[index] for each in best]
                candidates = of_language.rows[best].tolist() if direction == "text-to-image" else best
                shown[name] = Found(candidates, [names[each] for each in best], marks, int(ranks[name][index]))
            image = int(image_of[index])
            query = of_language.texts[index] if direction == "text-to-image" else of_language.image_ids[image]
            result.queries.append(ComparedQuery(language, query, int(of_language.rows[image]), shown))
    if not result.queries:
        raise InputError("the models do not differ on any query: compare other models, or all queries")
    return result


def _chosen(ranks: Mapping[str, np.ndarray], ids: list[str], count: int, differing: bool) -> list[int]:
    """Selects queries about different images by a hash of the image, and returns their indices."""
    hits = np.stack([(each == 1).astype(int) for each in ranks.values()])
    alike = np.ptp(hits, axis=0) == 0
    first: dict[str, int] = {}
    for index, image_id in enumerate(ids):
        if not (differing and alike[index]):
            first.setdefault(image_id, index)
    order = sorted(first, key=lambda image: hashlib.sha256(image.encode("utf-8", "surrogatepass")).digest())
    return [first[image] for image in order[:count]]

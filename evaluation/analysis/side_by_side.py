"""Several models on the same queries, one below the other, with what is right marked: texts that search images
(figures 4, 5 and 9 to 11 of MURAL's paper, figure 1 of MLA's), images that search texts (figures 6 and 12 to 14), and
a model beside its cross-lingual consistency (figures 5 and 6 of SMALR's).
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import datasets
import numpy as np
import torch

from ...configuration.errors import InputError, ModelKindError
from ...configuration.languages import normalize_language, normalize_languages
from ...data.batching.retrieval_sets import RetrievalSet, RetrievalSets
from ...data.batching.views import Images, images_of
from ...inference.embedder import Embedder
from ...inference.translation import Translator
from ...modeling.modeling_consistency import CrossLingualConsistency
from ..consistency import consistency_scores
from ..found_images import GalleryRow, TextsRow

Direction = Literal["text_to_image", "image_to_text"]
# The scores of some queries, by their indices, with all candidates: [Q] -> [Q, N].
Scores: TypeAlias = Callable[[np.ndarray], np.ndarray]

_AT_ONCE = 1024  # queries whose scores are held at a time


@dataclass(frozen=True)
class Found:
    """What a model finds for a query.

    Args:
        candidates: the indices of the best images (rows of the corpus) or texts, best first.
        names: their `image_id`, or the texts.
        scores: their scores.
        right: whether each is right.
        rank: the rank of the best right one, from 1; ties count against the model.
    """

    candidates: list[int]
    names: list[str]
    scores: list[float]
    right: list[bool]
    rank: int


@dataclass(frozen=True)
class ComparedQuery:
    """A query, and what each model finds for it.

    Args:
        language: the BCP-47 tag of the texts.
        query: the text, or the `image_id` of the image.
        row: the row of the query's image in the corpus.
        found: the name of each model -> what it finds.
    """

    language: str
    query: str
    row: int
    found: dict[str, Found]


@dataclass(frozen=True)
class SideBySide:
    """Models on the same queries.

    Args:
        direction: `text_to_image` or `image_to_text`.
        queries: some queries.
        first: language -> model -> the share of all queries, in percent, whose best candidate is right.
    """

    direction: Direction
    queries: list[ComparedQuery]
    first: dict[str, dict[str, float]]


def side_by_side(
    embedders: Mapping[str, Embedder],
    corpus: datasets.Dataset,
    languages: str | list[str] | tuple[str, ...],
    *,
    direction: Direction = "text_to_image",
    queries: int = 3,
    top: int = 5,
    differing: bool = False,
    show_progress: bool | None = None,
) -> SideBySide:
    """Searches a caption corpus with several models, and returns what they find for some queries of each language.

    Args:
        embedders: the models by their names.
        corpus: a caption corpus.
        languages: BCP-47 tags.
        direction: whether texts search images, or images texts of their language.
        queries: how many queries of each language; a hash of their image chooses them, not the results.
        top: how many candidates of each query.
        differing: whether to take only queries for which some models have a right candidate first, and others do not.
        show_progress: as in `Embedder.encode_image`.

    Raises:
        InputError: for no models.
        LanguageTagError, CorpusError, BadImageError, UnknownLanguageError: as `evaluate_retrieval`.
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
        found = of_corpus.of(language)
        texts = {
            name: embedder.encode_text(found.texts, language=language, show_progress=show_progress)
            for name, embedder in embedders.items()
        }
        models = {
            name: _cosines(texts[name], images[name])
            if direction == "text_to_image"
            else _cosines(images[name], texts[name])
            for name in embedders
        }
        _add(result, models, found, queries=queries, top=top, differing=differing)
    return result


def with_consistency(
    embedder: Embedder,
    corpus: datasets.Dataset,
    languages: str | list[str] | tuple[str, ...],
    consistency: CrossLingualConsistency,
    *,
    translator: Translator | None = None,
    queries: int = 3,
    top: int = 5,
    differing: bool = False,
    show_progress: bool | None = None,
) -> SideBySide:
    """As `side_by_side`, of one model: by the text alone, by each of its translations, and by all of them together
    (`evaluation.consistency`). The scores are 1 + cosine, and those of all languages are held at once.

    Args:
        embedder, corpus, languages, queries, top, show_progress: as in `side_by_side`.
        consistency: CLC-A, or a CLC-C that was fitted.
        translator: as in `evaluate_consistent_retrieval`.
        differing: whether to take only queries that the text alone and all together do not answer alike.
    """
    tags = normalize_languages(languages)
    result = SideBySide("text_to_image", [], {})
    of_corpus = RetrievalSets(corpus)
    for language in tags:
        scores, _ = consistency_scores(
            embedder, corpus, language, tags, translator=translator, show_progress=show_progress
        )
        with torch.no_grad():
            joint = consistency(scores.to(consistency.device)).cpu()
        models = {"the text alone": _given(scores[tags.index(language)]), "all together (CLC)": _given(joint)}
        others = {f"translated: {tag}": _given(scores[index]) for index, tag in enumerate(tags) if tag != language}
        _add(result, models, of_corpus.of(language), queries=queries, top=top, differing=differing, beside=others)
    return result


def side_by_side_rows(compared: SideBySide, corpus: datasets.Dataset) -> list[GalleryRow | TextsRow]:
    """Each query with a row for each model, as the rows of a gallery.

    Args:
        compared: the queries.
        corpus: the corpus that they are from.

    Raises:
        ModelKindError: for a corpus of features in the place of images.
        InputError: when there is no query to show.
        BadImageError: for an image that cannot be read.
    """
    images = _images_to_show(corpus)
    if not compared.queries:
        raise InputError("no query is answered in different ways: compare other models, or all queries")
    rows: list[GalleryRow | TextsRow] = []
    for query in compared.queries:
        for label, found in query.found.items():
            shared = {"scores": found.scores, "right": found.right, "rank": found.rank, "label": label}
            if compared.direction == "text_to_image":
                shown = [images[index] for index in found.candidates]
                rows.append(GalleryRow(query=query.query, language=query.language, images=shown, **shared))  # type: ignore[arg-type]
            else:
                rows.append(TextsRow(images[query.row], query.language, found.names, **shared))  # type: ignore[arg-type]
    return rows


def _images_to_show(corpus: datasets.Dataset) -> Images:
    images = images_of(corpus)
    if not isinstance(images, Images):
        raise ModelKindError("a gallery shows images, and the corpus has features in their place")
    return images


def _cosines(queries: np.ndarray, candidates: np.ndarray) -> Scores:
    return lambda rows: queries[rows] @ candidates.T


def _given(scores: torch.Tensor) -> Scores:
    return lambda rows: scores[torch.from_numpy(rows)].numpy()


def _add(
    result: SideBySide,
    models: Mapping[str, Scores],
    found: RetrievalSet,
    *,
    queries: int,
    top: int,
    differing: bool,
    beside: Mapping[str, Scores] | None = None,
) -> None:
    """Adds the queries of a language; those of `beside` are shown, and choose none."""
    right: list[list[int]] = list(found.text_to_images)
    image_of = [images[0] for images in right]
    if result.direction == "image_to_text":
        texts: dict[int, list[int]] = {}
        for text, own in enumerate(right):
            for image in own:
                texts.setdefault(image, []).append(text)
        image_of, right = list(texts), list(texts.values())
        rows = np.array(image_of)
    else:
        rows = np.arange(len(right))
    hits = {name: _hits(scores, rows, right) for name, scores in models.items()}
    language = found.language
    result.first[language] = {name: 100 * float(each.mean()) for name, each in hits.items()}
    alike = np.all(list(hits.values()), axis=0) | ~np.any(list(hits.values()), axis=0)
    ids = [found.image_ids[image] for image in image_of]
    order = sorted(range(len(right)), key=lambda n: hashlib.sha256(ids[n].encode("utf-8", "surrogatepass")).digest())
    chosen: dict[str, int] = {}  # one query of an image
    for index in order:
        if not (differing and alike[index]):
            chosen.setdefault(ids[index], index)
    names = found.image_ids if result.direction == "text_to_image" else found.texts
    for image_id, index in list(chosen.items())[:queries]:
        all_models = {**models, **(beside or {})}
        shown = {name: _found(scores, rows[index], right[index], names, top) for name, scores in all_models.items()}
        query = image_id if result.direction == "image_to_text" else found.texts[index]
        result.queries.append(ComparedQuery(language, query, int(found.rows[image_of[index]]), shown))


def _hits(scores: Scores, rows: np.ndarray, right: list[list[int]]) -> np.ndarray:
    """Whether the best candidate of each query is right, and better than each that is not. -> boolean [Q]"""
    hits = []
    for start in range(0, len(rows), _AT_ONCE):
        part = scores(rows[start : start + _AT_ONCE])
        hits += [_rank(own, right[start + index]) == 1 for index, own in enumerate(part)]
    return np.array(hits)


def _rank(scores: np.ndarray, right: list[int]) -> int:
    wrong = np.ones(len(scores), dtype=bool)
    wrong[right] = False
    return 1 + int((scores[wrong] >= scores[right].max()).sum())


def _found(scores: Scores, row: int, right: list[int], names: list[str], top: int) -> Found:
    own = scores(np.array([row]))[0]
    best = np.argsort(-own, kind="stable")[:top].tolist()
    named = [names[index] for index in best]
    return Found(best, named, own[best].tolist(), [index in right for index in best], _rank(own, right))


# ---- The nearest neighbors of a query: images, and captions in every language ----


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
    images = _images_to_show(corpus)

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

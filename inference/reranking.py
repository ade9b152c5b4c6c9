"""Reranking: a dual encoder finds the best k candidates of a query, and a cross-encoder reorders them.

The other items keep the dual encoder's order. In both directions, from text to image and from image to text, each
query has a shortlist of its own; a pair that is on two shortlists is scored once.

Ties count against the query, as in `evaluation.ranking`: an item is on the shortlist when it is among the best k even
if all that tie with it come before it. With k = 1 the ranks are therefore those of the dual encoder, with k as large
as the gallery those of the cross-encoder.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..configuration.errors import InputError, NonFiniteError
from ..data.batching.retrieval_sets import RetrievalSet
from ..data.batching.views import ImageFeatures
from .cross_encoder import CrossEncoder
from .similarity import COSINE_TIE, SCORES_AT_ONCE, unit_rows

# The scores of candidates on a shortlist are above every cosine.
_ABOVE_COSINES = 2.0


@dataclass(frozen=True)
class Reranker:
    """A cross-encoder that reorders the candidates of a dual encoder, for `evaluate_retrieval` and `EmojiBenchmark`.

    Args:
        cross_encoder: scores the candidates.
        top_k: candidates per query passed to the cross-encoder.
        regions: computes the region features of a set's images, which the cross-encoder reads in the place of the
            images: `lambda queries: extractor(queries.images)`, or
            `lambda queries: [features[image_id] for image_id in queries.image_ids]`.
        show_progress: as in `Embedder.encode_text`.
    """

    cross_encoder: CrossEncoder
    top_k: int = 50
    regions: Callable[[RetrievalSet], Sequence[Any]] | None = None
    show_progress: bool | None = None

    def score_function(self, queries: RetrievalSet) -> Callable[[np.ndarray], np.ndarray]:
        """The function that scores pairs of `queries`: from pairs [M, 2], indices of a text and of an image, to scores
        [M], higher meaning more alike.

        Raises:
            InputError: for a corpus of features in the place of images, which need `regions`.
            UnknownLanguageError: when it is called, for a language that the cross-encoder has not learned.
        """
        images, regions = (queries.images, None) if self.regions is None else (None, self.regions(queries))
        if isinstance(images, ImageFeatures):
            raise InputError(
                "a cross-encoder reads images or regions, and not the features of a dual encoder: give regions="
            )

        def score(pairs: np.ndarray) -> np.ndarray:
            return self.cross_encoder.score_pairs(
                queries.texts,
                images,
                pairs,
                language=queries.language,
                regions=regions,
                show_progress=self.show_progress,
            )

        return score


def reranked_scores(
    image_embeddings: np.ndarray,
    text_embeddings: np.ndarray,
    score: Callable[[np.ndarray], np.ndarray],
    top_k: int,
) -> tuple["RerankedScores", "RerankedScores"]:
    """Cosines, and in the place of those of the best `top_k` of each query the scores of a cross-encoder, above all.

    Args:
        image_embeddings: [n_images, d].
        text_embeddings: [n_texts, d].
        score: from pairs [M, 2], indices of a text and of an image, to their scores [M], higher meaning more alike. It
            is called once, with every pair that is on a shortlist.
        top_k: candidates per query, at least 1.

    Returns:
        The scores of texts with all images, and of images with all texts; ties are within `COSINE_TIE`.

    Raises:
        NonFiniteError: for embeddings or scores that are not finite.
        ValueError: for a `top_k` below 1.
    """
    if top_k < 1:
        raise ValueError(f"top_k={top_k}: at least one item is reranked")
    images, texts = unit_rows(image_embeddings), unit_rows(text_embeddings)
    found_images = _shortlists(texts, images, top_k)  # [M, 2]: text, image
    found_texts = _shortlists(images, texts, top_k).flip(1)
    # A pair as one code, so that those on two shortlists are one.
    codes = [pairs[:, 0] * len(images) + pairs[:, 1] for pairs in (found_images, found_texts)]
    wanted = torch.cat(codes).unique()  # sorted
    scores = np.asarray(score(torch.stack([wanted // len(images), wanted % len(images)], 1).numpy()))
    if not np.isfinite(scores).all():
        raise NonFiniteError(f"scores: {np.sum(~np.isfinite(scores))} of {len(scores)} pairs have NaN or infinity")
    levels = _ABOVE_COSINES + torch.from_numpy(np.unique(scores, return_inverse=True)[1]).double()
    by_text, by_image = (levels[torch.searchsorted(wanted, code)] for code in codes)
    return (
        RerankedScores(texts, images, found_images, by_text),
        RerankedScores(images, texts, found_texts.flip(1), by_image),
    )


def _shortlists(queries: Tensor, items: Tensor, top_k: int) -> Tensor:
    """The pairs of queries [n, d] with those of items [m, d] that are among their best: [M, 2], ascending."""
    if top_k >= len(items):
        return torch.cartesian_prod(torch.arange(len(queries)), torch.arange(len(items)))
    found = []
    for rows in torch.arange(len(queries)).split(max(1, SCORES_AT_ONCE // len(items))):
        scores = queries[rows] @ items.T  # [rows, m]
        first_left_out = scores.topk(top_k + 1).values[:, -1:]
        pairs = (scores - COSINE_TIE > first_left_out).nonzero()
        found.append(torch.stack([rows[pairs[:, 0]], pairs[:, 1]], 1))
    return torch.cat(found)


@dataclass(frozen=True)
class RerankedScores:
    """The scores of queries with all items, for some of the queries at a time.

    Args:
        queries, items: unit vectors, [n, d] and [m, d].
        pairs: the pairs that a cross-encoder scored, [M, 2], ascending by query.
        levels: what stands in the place of their cosines, [M].
    """

    queries: Tensor
    items: Tensor
    pairs: Tensor
    levels: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        values = (self.queries[rows] @ self.items.T).double()  # [rows, m]
        mine = torch.isin(self.pairs[:, 0], rows)
        values[torch.searchsorted(rows, self.pairs[mine, 0].contiguous()), self.pairs[mine, 1]] = self.levels[mine]
        return values

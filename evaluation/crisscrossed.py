"""The metrics of Crisscrossed Captions (CxC; Parekh et al. 2021, section 4; Jain et al. 2021, tables 5 and 6).

Retrieval counts the best-ranked of all positives that annotators found, including captions among captions and images
among images. Correlation measures whether a model orders pairs as people do. Because ratings are dense and the ratings
of one query depend on each other, Spearman's correlation is computed on samples: half of the queries, with one rated
item each.
"""

import numpy as np

from ..data.batching.retrieval_sets import RetrievalSet
from ..data.batching.views import images_of
from ..data.readers.coco import Crisscrossed, Ratings
from ..inference.embedder import Embedder
from .query_ranks import QueryRanks
from .ranking import RECALL_AT, embedding_ranks, neighbor_ranks, percent_within

# The number of samples of half of the queries, and the seed for sampling.
SAMPLES = 1000
_SEED = 0

_LANGUAGE = "en"
Results = dict[str, dict[str, dict[str, float]]]  # test set -> language -> metric -> number


def evaluate_crisscrossed(
    embedder: Embedder,
    data: Crisscrossed,
    *,
    ranks: dict[str, QueryRanks] | None = None,
    show_progress: bool | None = None,
) -> Results:
    """Evaluates a model on CxC.

    Args:
        embedder: the model.
        data: the captions, images and ratings.
        ranks: a dictionary to which the ranks of image-text retrieval are added, as `image-text/en`.
        show_progress: as in `Embedder.encode_image`.

    Returns:
        By test set, language (English) and metric:

        - `image-text`: the recalls of `evaluate_retrieval` in percent, and `t2i_mean_rank` and `i2t_mean_rank`.
        - `text-text` and `image-image`: `r1`, `r5` and `r10` in percent, `mean_rank`, and `n`, the number of queries
          with a positive.
        - `sts`, `sis` and `sits`: `spearman`, 100 times the mean correlation of `SAMPLES` samples, its standard
          deviation `std`, and `n`, the number of rated pairs.
    """
    queries = _queries(data)
    images = embedder.encode_image(queries.images, show_progress=show_progress)
    texts = embedder.encode_text(data.texts, language=_LANGUAGE, show_progress=show_progress)
    found = embedding_ranks(images, texts, queries.text_to_images)
    if ranks is not None:
        ranks[f"image-text/{_LANGUAGE}"] = QueryRanks.of(queries, found)
    mean_ranks = {"t2i_mean_rank": _mean_rank(found.text_to_image), "i2t_mean_rank": _mean_rank(found.image_to_text)}
    sides = {"sts": (texts, texts), "sis": (images, images), "sits": (texts, images)}
    results = {
        "image-text": found.recalls() | mean_ranks,
        "text-text": _neighbor_recalls(neighbor_ranks(texts, data.positives("sts"))),
        "image-image": _neighbor_recalls(neighbor_ranks(images, data.positives("sis"))),
    }
    for kind, (firsts, seconds) in sides.items():
        results[kind] = _correlation(data.ratings[kind], firsts, seconds)
    return {name: {_LANGUAGE: numbers} for name, numbers in results.items()}


def sampled_spearman(
    queries: np.ndarray, ratings: np.ndarray, scores: np.ndarray, *, samples: int = SAMPLES, seed: int = _SEED
) -> tuple[float, float]:
    """Returns the mean and the standard deviation of Spearman's correlation between ratings and scores, over samples
    of half of the queries with one item each.

    Args:
        queries: the query of each rated pair [N].
        ratings, scores: the human rating and the model's score of each pair [N].
        samples: the number of samples.
        seed: the seed for sampling.

    Returns:
        Both are NaN if a sample has fewer than two queries or only equal numbers.
    """
    from scipy.stats import spearmanr  # takes half a second to import

    order = np.argsort(queries, kind="stable")
    _, starts, counts = np.unique(queries[order], return_index=True, return_counts=True)
    half = max(1, len(starts) // 2)
    rng = np.random.default_rng(seed)
    correlations = np.empty(samples)
    for index in range(samples):
        drawn = rng.choice(len(starts), half, replace=False)
        items = order[starts[drawn] + rng.integers(counts[drawn])]
        is_defined = half > 1 and np.ptp(ratings[items]) > 0 and np.ptp(scores[items]) > 0
        correlations[index] = spearmanr(ratings[items], scores[items]).statistic if is_defined else np.nan
    return float(correlations.mean()), float(correlations.std())


def _queries(data: Crisscrossed) -> RetrievalSet:
    """Returns the captions as queries for images. The image that a caption was written for comes first among its
    images."""
    image_ids = list(data.corpus["image_id"])
    positives = data.positives("sits")
    own = data.image_of_text
    return RetrievalSet(
        language=_LANGUAGE,
        images=images_of(data.corpus),
        image_ids=image_ids,
        texts=data.texts,
        text_image_ids=[image_ids[image] for image in own],
        text_to_images=[
            sorted(each, key=lambda other: other != image) for image, each in zip(own, positives, strict=True)
        ],
        rows=np.arange(len(image_ids)),
    )


def _correlation(ratings: Ratings, firsts: np.ndarray, seconds: np.ndarray) -> dict[str, float]:
    # The first item of a pair is the query.
    queries, items = ratings.pairs.T
    cosines = np.einsum("nd,nd->n", firsts[queries], seconds[items])
    mean, std = sampled_spearman(queries, ratings.scores, cosines)
    return {"spearman": 100 * mean, "std": 100 * std, "n": len(queries)}


def _neighbor_recalls(ranks: np.ndarray) -> dict[str, float]:
    queries = ranks[ranks > 0]
    recalls = {f"r{k}": percent_within(queries, k) for k in RECALL_AT}
    return recalls | {"mean_rank": _mean_rank(queries), "n": len(queries)}


def _mean_rank(ranks: np.ndarray) -> float:
    queries = ranks[ranks > 0]
    return float(queries.mean()) if len(queries) else float("nan")

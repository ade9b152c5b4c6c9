"""Published retrieval benchmarks, each evaluated by its own protocol, with the results that papers report.

`data.benchmarks` describes the benchmarks, and `data.readers.coco` reads their files.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..data.batching.retrieval_sets import RetrievalSet
from ..data.batching.views import images_of
from ..data.benchmarks import Benchmark, Figures, find_benchmark
from ..data.readers.coco import Crisscrossed, Ratings, read_benchmark
from ..inference.embedder import Embedder
from ..utils.errors import CorpusError
from .ranking import RECALL_AT, QueryRanks, embedding_ranks, neighbor_ranks, percent_within
from .retrieval import evaluate_retrieval

Results = dict[str, dict[str, dict[str, float]]]  # test set -> language -> metric -> number

FOLD = 1000  # number of images in a fold (Karpathy & Fei-Fei 2015)
# The name of the mean over all languages.
ALL = "all"


@dataclass(frozen=True)
class LoadedBenchmark:
    """A benchmark with its data; `load_benchmark` returns it.

    Args:
        data: the images and captions; for `cxc`, the captions, images and ratings.
    """

    facts: Benchmark
    languages: tuple[str, ...]
    data: Any

    def evaluate(
        self, embedder: Embedder, *, ranks: dict[str, QueryRanks] | None = None, show_progress: bool | None = None
    ) -> dict[str, Any]:
        """Evaluates a model by the protocol of the benchmark; `ranks` receives the ranks of single queries, by test
        set and language.

        Returns:
            `benchmark`, its name. `results`: test set -> language -> metric -> number; except for `cxc`, there is one
            test set, named like the benchmark, with the metrics of `evaluate_retrieval`. `means`: the mean over all
            languages, if there are several. `published`: the results of papers for these languages, as `source`,
            `note`, `test_set`, `metric` (None if the columns are metrics), `ranking` (`standard` or `mla`), `columns`,
            `rows` (published numbers), and `ours`, the numbers measured here for each column.
        """
        recorded = _Recorded(embedder)
        collected: dict[str, QueryRanks] = {}
        measured = self._measured(recorded, "standard", collected, show_progress)
        if ranks is not None:
            ranks |= collected
        by_ranking = {"standard": measured}
        for ranking in {figures.ranking for figures in self.facts.figures} - {"standard"}:
            recorded.rewind()
            by_ranking[ranking] = self._measured(recorded, ranking, {}, show_progress)
        return {
            "benchmark": self.facts.name,
            "results": measured,
            "means": self._means(measured),
            "published": self._published(by_ranking),
        }

    def _measured(
        self, embedder: Embedder, ranking: str, ranks: dict[str, QueryRanks], progress: bool | None
    ) -> Results:
        """Evaluates by the benchmark's protocol with one of the papers' rankings; adds to `ranks` as in `evaluate`."""
        if self.facts.protocol == "crisscrossed":
            return evaluate_crisscrossed(embedder, self.data, ranks=ranks, show_progress=progress)
        measure = self._folds if self.facts.protocol == "folds" else self._retrieval
        return measure(embedder, ranking, ranks, progress)

    def _retrieval(
        self, embedder: Embedder, ranking: str, ranks: dict[str, QueryRanks], progress: bool | None
    ) -> Results:
        name = self.facts.name
        by_language: dict[str, QueryRanks] = {}
        results = evaluate_retrieval(
            embedder,
            self.data,
            list(self.languages),
            protocol=ranking,
            ranks=by_language,
            show_progress=progress,
        )
        ranks |= {f"{name}/{language}": each for language, each in by_language.items()}
        return {name: results}

    def _folds(self, embedder: Embedder, ranking: str, ranks: dict[str, QueryRanks], progress: bool | None) -> Results:
        """Evaluates in folds. Folds do not share images, so each image and each caption is encoded once."""
        name, corpus = self.facts.name, self.data
        if len(corpus) % FOLD:
            raise CorpusError(f"{name} has {len(corpus):,} images, which cannot be split into folds of {FOLD:,}")
        folds, of_folds = [], []
        for start in range(0, len(corpus), FOLD):
            part = replace(self, data=corpus.select(range(start, start + FOLD)))
            of_fold: dict[str, QueryRanks] = {}
            folds.append(part._retrieval(embedder, ranking, of_fold, progress)[name])
            of_folds.append(of_fold)
        ranks |= {key: QueryRanks.joined([of_fold[key] for of_fold in of_folds]) for key in of_folds[0]}
        joined = {}
        for language in self.languages:
            parts = [fold[language] for fold in folds]
            names = dict.fromkeys(name for part in parts for name in part if name.startswith("n_"))
            counts = {name: sum(part.get(name, 0) for part in parts) for name in names}
            joined[language] = _mean(parts) | counts | {"n_folds": len(parts)}
        return {name: joined}

    def _means(self, measured: Results) -> dict[str, dict[str, float]]:
        """Returns the mean recalls over all languages, if there are several."""
        if len(self.languages) < 2:
            return {}
        return {ALL: _mean(list(measured[self.facts.name].values()))}

    def _published(self, by_ranking: dict[str, Results]) -> list[dict[str, Any]]:
        tables = [_beside(figures, by_ranking[figures.ranking]) for figures in self.facts.figures]
        return [table for table in tables if table["columns"]]


def load_benchmark(name: str, root: str | Path, languages: str | Sequence[str] | None = None) -> LoadedBenchmark:
    """Reads the files of a published benchmark, in their published layout in the folder `root`. Images are not
    decoded, but a missing one raises an error immediately.

    Examples:
        >>> benchmark = load_benchmark("xtd", "data/xtd", ["de", "ko"])
        >>> benchmark.evaluate(Embedder.from_pretrained("runs/mural"))["results"]["xtd"]["ko"]["t2i_r10"]
    """
    facts = find_benchmark(name)
    chosen = facts.chosen(languages)
    return LoadedBenchmark(facts, chosen, read_benchmark(facts, root, chosen))


class _Recorded(Embedder):
    """An embedder that keeps its embeddings: after `rewind`, the same calls in the same order return them again.

    A protocol makes the same calls each time, so it can run with another ranking without encoding again.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._kept: list[np.ndarray] = []
        self._next = 0

    def rewind(self) -> None:
        self._next = 0

    def encode_image(self, images: Any, **options: Any) -> np.ndarray:
        return self._once(partial(self._embedder.encode_image, images, **options))

    def encode_text(self, texts: Any, **options: Any) -> np.ndarray:
        return self._once(partial(self._embedder.encode_text, texts, **options))

    def _once(self, encode: Callable[[], np.ndarray]) -> np.ndarray:
        if self._next == len(self._kept):
            self._kept.append(encode())
        self._next += 1
        return self._kept[self._next - 1]


def _mean(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns the mean of each recall, without counts. If no captions are equal, the second reading is the same as the
    first."""
    names = dict.fromkeys(name for part in parts for name in part if not name.startswith("n_"))
    first_of = {name: name.removesuffix("_equal_texts") for name in names}
    return {name: sum(part.get(name, part[first_of[name]]) for part in parts) / len(parts) for name in names}


def _beside(figures: Figures, measured: Results) -> dict[str, Any]:
    """Returns the published numbers of the measured columns, with the measured numbers."""
    places = [figures.place(column) for column in figures.columns]
    ours = [_value(measured.get(figures.test_set, {}).get(language, {}), metric) for language, metric in places]
    kept = [index for index, value in enumerate(ours) if value is not None]
    return {
        "source": figures.source,
        "note": figures.note,
        "test_set": figures.test_set,
        "metric": figures.metric,
        "ranking": figures.ranking,
        "columns": [figures.columns[index] for index in kept],
        "ours": [ours[index] for index in kept],
        "rows": {row: [values[index] for index in kept] for row, values in figures.rows.items()},
    }


def _value(numbers: Mapping[str, float], metric: str) -> float | None:
    """Returns a metric; `r1` is the mean of R@1 in both directions."""
    if metric == "r1" and "t2i_r1" in numbers:
        return (numbers["t2i_r1"] + numbers["i2t_r1"]) / 2
    value = numbers.get(metric)
    return None if value is None or math.isnan(value) else value


# ---- Crisscrossed Captions (CxC; Parekh et al. 2021, section 4; Jain et al. 2021, tables 5 and 6) ----
# Retrieval counts the best-ranked of all positives that annotators found, including captions among captions and images
# among images. Correlation measures whether a model orders pairs as people do. Because ratings are dense and the
# ratings of one query depend on each other, Spearman's correlation is computed on samples: half of the queries, with
# one rated item each.

# The number of samples of half of the queries, and the seed for sampling.
SAMPLES = 1000
_SEED = 0

_LANGUAGE = "en"


def evaluate_crisscrossed(
    embedder: Embedder,
    data: Crisscrossed,
    *,
    ranks: dict[str, QueryRanks] | None = None,
    show_progress: bool | None = None,
) -> Results:
    """Evaluates a model on CxC.

    Args:
        ranks: a dictionary to which the ranks of image-text retrieval are added, as `image-text/en`.

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
    """The mean and the standard deviation of Spearman's correlation between ratings [N] and scores [N], over samples
    of half of the queries with one item each; NaN if a sample has fewer than two queries or only equal numbers.

    Args:
        queries: the query of each rated pair [N].
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

"""Published retrieval benchmarks, each evaluated by its own protocol, with the results that papers report.
`data.benchmarks` describes them, and `data.readers.coco` reads their files."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from ..data.batching.views import RetrievalSet, images_of
from ..data.benchmarks import Benchmark, Figures, find_benchmark
from ..data.readers.coco import READERS, Crisscrossed, Ratings
from ..inference.embedder import Embedder
from ..utils.errors import CorpusError, requires
from .ranking import PROTOCOLS, RECALL_AT, QueryRanks, embedding_ranks, neighbor_ranks, percent_within
from .retrieval import evaluate_retrieval

ByLanguage = dict[str, dict[str, float]]  # language -> metric -> number
Results = dict[str, ByLanguage]  # test set -> language -> metric -> number

FOLD = 1000  # number of images in a fold (Karpathy & Fei-Fei 2015)
ALL = "all"  # the name of the mean over all languages


@dataclass(frozen=True)
class LoadedBenchmark:
    """A benchmark with its `data`, from `load_benchmark`: images and captions; for `cxc`, also ratings."""

    facts: Benchmark
    languages: tuple[str, ...]
    data: Any

    def evaluate(self, embedder: Embedder, *, ranks: dict[str, QueryRanks] | None = None) -> dict[str, Any]:
        """Evaluates a model by the benchmark's protocol; `ranks` receives the ranks of queries, by test set and
        language. Returns the name as `benchmark`; `results`, test set -> language -> metric -> number: except for
        `cxc`, one test set, named like the benchmark, with the metrics of `evaluate_retrieval`; `means` over several
        languages; and `published`, the papers' tables for these languages, as `Figures` with the new `ours`."""
        name, collected = self.facts.name, {} if ranks is None else ranks
        if self.facts.protocol == "crisscrossed":
            found = evaluate_crisscrossed(embedder, self.data, collected)
            by_ranking = dict.fromkeys(PROTOCOLS, found)
        else:
            folds = self._folds() if self.facts.protocol == "folds" else [self.data]
            parts = [self._retrieval(embedder, corpus) for corpus in folds]
            for language in self.languages:
                of_folds = [of_fold[language] for of_fold, _ in parts]
                collected[f"{name}/{language}"] = QueryRanks.joined(of_folds) if len(folds) > 1 else of_folds[0]
            by_ranking = {
                ranking: {
                    name: {tag: _over_folds([found[ranking][tag] for _, found in parts]) for tag in self.languages}
                }
                for ranking in PROTOCOLS
            }
        measured = by_ranking["standard"]
        tables = [_next_to(figures, by_ranking[figures.ranking]) for figures in self.facts.figures]
        return {
            "benchmark": name,
            "results": measured,
            "means": {ALL: _mean(list(measured[name].values()))} if len(self.languages) > 1 else {},
            "published": [table for table in tables if table["columns"]],
        }

    def _folds(self) -> list[Dataset]:
        count = len(self.data)
        if count % FOLD:
            raise CorpusError(f"{self.facts.name} has {count:,} images, which cannot be split into folds of {FOLD:,}")
        return [self.data.select(range(start, start + FOLD)) for start in range(0, count, FOLD)]

    def _retrieval(self, embedder: Embedder, corpus: Dataset) -> tuple[dict[str, QueryRanks], dict[str, ByLanguage]]:
        """The ranks of single queries, and recall by ranking and language; everything is encoded once."""
        ranks: dict[str, QueryRanks] = {}
        given: dict[str, tuple[np.ndarray, np.ndarray, list[list[int]]]] = {}
        languages = list(self.languages)
        found = evaluate_retrieval(embedder, corpus, languages, ranks=ranks, embeddings=given)
        other = {
            tag: embedding_ranks(images, texts, right, protocol="mla").recalls()
            for tag, (texts, images, right) in given.items()
        }
        return ranks, {"standard": found, "mla": other}


def load_benchmark(name: str, root: str | Path, languages: str | Sequence[str] | None = None) -> LoadedBenchmark:
    """Reads the files of a published benchmark, in their published layout in the folder `root`. Images are not
    decoded, but a missing one raises an error immediately.

    Examples:
        >>> benchmark = load_benchmark("xtd", "data/xtd", ["de", "ko"])
        >>> benchmark.evaluate(Embedder.from_pretrained("runs/mural"))["results"]["xtd"]["ko"]["t2i_r10"]
    """
    facts = find_benchmark(name)
    chosen = facts.chosen(languages)
    return LoadedBenchmark(facts, chosen, READERS[name](Path(root), chosen))


def _over_folds(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean recalls of folds, with the sums of their counts; the numbers themselves if there is one part."""
    if len(parts) == 1:
        return dict(parts[0])
    names = dict.fromkeys(name for part in parts for name in part if name.startswith("n_"))
    return _mean(parts) | {name: sum(part.get(name, 0) for part in parts) for name in names} | {"n_folds": len(parts)}


def _mean(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns the mean of each recall, without counts; without equal captions, the second reading equals the first."""
    names = dict.fromkeys(name for part in parts for name in part if not name.startswith("n_"))
    first_of = {name: name.removesuffix("_equal_texts") for name in names}
    return {name: sum(part.get(name, part[first_of[name]]) for part in parts) / len(parts) for name in names}


def _next_to(figures: Figures, measured: Results) -> dict[str, Any]:
    ours = []
    for language, metric in map(figures.place, figures.columns):
        numbers = measured.get(figures.test_set, {}).get(language, {})
        if metric == "r1" and "t2i_r1" in numbers:  # the mean of both directions
            numbers = {"r1": (numbers["t2i_r1"] + numbers["i2t_r1"]) / 2}
        ours.append(numbers.get(metric, math.nan))
    kept = [index for index, value in enumerate(ours) if not math.isnan(value)]
    return asdict(figures) | {
        "columns": [figures.columns[index] for index in kept],
        "ours": [ours[index] for index in kept],
        "rows": {row: [values[index] for index in kept] for row, values in figures.rows.items()},
    }


# ---- Crisscrossed Captions (CxC; Parekh et al. 2021, section 4; Jain et al. 2021, tables 5 and 6) ----
# Retrieval counts the best-ranked of all positives that annotators found, including captions among captions and images
# among images. Correlation measures whether a model orders pairs as people do. Because ratings are dense and the
# ratings of one query depend on each other, Spearman's correlation is computed on samples: half of the queries, with
# one rated item each.

SAMPLES = 1000
_LANGUAGE = "en"


def evaluate_crisscrossed(embedder: Embedder, data: Crisscrossed, ranks: dict[str, QueryRanks]) -> Results:
    """Evaluates a model on CxC; `ranks` receives the ranks of image-text retrieval, as `image-text/en`. Returns test
    set -> `en` -> metric -> number: `image-text` has the recalls of `evaluate_retrieval`, `t2i_mean_rank` and
    `i2t_mean_rank`; `text-text` and `image-image` have `r1`, `r5`, `r10`, `mean_rank`, and `n`, the number of queries
    with a positive; `sts`, `sis` and `sits` have `spearman`, 100 times the mean correlation of `SAMPLES` samples, its
    standard deviation `std`, and `n`, the number of rated pairs."""
    image_ids = list(data.corpus["image_id"])
    # The image that a caption was written for comes first among its images.
    right = [
        sorted(each, key=lambda other: other != own)
        for own, each in zip(data.image_of_text, data.positives("sits"), strict=True)
    ]
    queries = RetrievalSet(
        language=_LANGUAGE,
        images=images_of(data.corpus),
        image_ids=image_ids,
        texts=data.texts,
        text_image_ids=[image_ids[image] for image in data.image_of_text],
        text_to_images=right,
        rows=np.arange(len(image_ids)),
    )
    images = embedder.encode_image(queries.images)
    texts = embedder.encode_text(data.texts, language=_LANGUAGE)
    found = embedding_ranks(images, texts, right)
    ranks[f"image-text/{_LANGUAGE}"] = QueryRanks.of(queries, found)
    mean_ranks = {"t2i_mean_rank": _mean_rank(found.text_to_image), "i2t_mean_rank": _mean_rank(found.image_to_text)}
    results = {
        "image-text": found.recalls() | mean_ranks,
        "text-text": _neighbor_recalls(neighbor_ranks(texts, data.positives("sts"))),
        "image-image": _neighbor_recalls(neighbor_ranks(images, data.positives("sis"))),
        "sts": _correlation(data.ratings["sts"], texts, texts),
        "sis": _correlation(data.ratings["sis"], images, images),
        "sits": _correlation(data.ratings["sits"], texts, images),
    }
    return {name: {_LANGUAGE: numbers} for name, numbers in results.items()}


def sampled_spearman(
    queries: np.ndarray, ratings: np.ndarray, scores: np.ndarray, *, samples: int = SAMPLES, seed: int = 0
) -> tuple[float, float]:
    """Returns the mean and deviation of Spearman's correlation between ratings [N] and scores [N], over samples of
    half of the queries with one item each; NaN if a sample has fewer than two queries or only equal numbers."""
    with requires("scipy"):
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

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

from ..data.benchmarks import Benchmark, Figures, find_benchmark
from ..data.readers.coco import read_benchmark
from ..inference.embedder import Embedder
from ..utils.errors import CorpusError
from .crisscrossed import Results, evaluate_crisscrossed
from .query_ranks import QueryRanks
from .retrieval import evaluate_retrieval

FOLD = 1000  # number of images in a fold (Karpathy & Fei-Fei 2015)
# The name of the mean over all languages.
ALL = "all"


@dataclass(frozen=True)
class LoadedBenchmark:
    """A benchmark with its data; `load_benchmark` returns it.

    Args:
        facts: what is known about the benchmark.
        languages: the languages to evaluate.
        data: the images and captions; for `cxc`, the captions, images and ratings.
    """

    facts: Benchmark
    languages: tuple[str, ...]
    data: Any

    def evaluate(
        self, embedder: Embedder, *, ranks: dict[str, QueryRanks] | None = None, show_progress: bool | None = None
    ) -> dict[str, Any]:
        """Evaluates a model by the protocol of the benchmark.

        Args:
            embedder: the model.
            ranks: a dictionary to which the ranks of single queries are added, by test set and language.
            show_progress: as in `Embedder.encode_image`.

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
    """Reads the files of a published benchmark.

    Images are not decoded. A missing image raises an error immediately.

    Args:
        name: the name of the benchmark, as `babelens evaluate benchmark` lists it.
        root: the folder with the files, in their published layout.
        languages: the languages to evaluate; by default all languages of the benchmark.

    Examples:
        >>> benchmark = load_benchmark("xtd", "data/xtd", ["de", "ko"])
        >>> benchmark.evaluate(Embedder.from_pretrained("runs/mural"))["results"]["xtd"]["ko"]["t2i_r10"]
    """
    facts = find_benchmark(name)
    chosen = facts.chosen(languages)
    return LoadedBenchmark(facts, chosen, read_benchmark(facts, root, chosen))


# ----------------------------------------------------------------------------------------------- encoding only once


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


# ----------------------------------------------------------------------------------------------- means and figures


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

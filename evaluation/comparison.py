"""Comparing models: the mean and standard deviation over the seeds of a row, and whether differences are significant.
The paired bootstrap (Efron & Tibshirani 1993) tests the difference from the first row: it resamples images with all of
their texts, in all languages, in the same way for both rows; within each language if each searches different images (a
stratified bootstrap). The test is about other queries; the standard deviation is about other seeds."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..utils.errors import InputError
from .ranking import RECALL_AT, QueryRanks
from .results import Key, Results

RESAMPLES = 10_000
SIGNIFICANT = {0.001: "***", 0.01: "**", 0.05: "*"}
_INTERVAL = (2.5, 97.5)  # percentiles
_RECALLS = [f"{direction}_r{k}" for direction in ("t2i", "i2t") for k in RECALL_AT]
# The metrics that can be computed from ranks, as means of recalls; for labels, of the rank of the correct label.
_OF_RANKS = {name: [name] for name in _RECALLS}
_OF_RANKS |= {f"r{k}": [f"t2i_r{k}", f"i2t_r{k}"] for k in RECALL_AT}
_OF_RANKS |= {"mean_recall": _RECALLS, "accuracy": ["t2i_r1"], "top1": ["t2i_r1"], "top5": ["t2i_r5"]}


@dataclass(frozen=True)
class Difference:
    """The difference of the means of a row and the first row, in percentage points, with its 95 % confidence interval
    and two-sided p-value: the probability of a difference at least as large if there is none."""

    value: float
    low: float
    high: float
    p: float

    @property
    def stars(self) -> str:
        """`*` for p < .05, and so on."""
        return next((mark for bound, mark in SIGNIFICANT.items() if self.p < bound), "")


@dataclass(frozen=True)
class Score:
    """A metric of a row for the queries of a language, or the mean over several languages, whose name is `language`:
    the score with each seed, in percent, and the difference from the first row, if there are ranks."""

    test_set: str
    language: str
    row: str
    metric: str
    values: list[float]
    difference: Difference | None = None

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return statistics.mean(self.values)

    @property
    def deviation(self) -> float | None:
        """The standard deviation over the seeds; None for a single seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def __str__(self) -> str:
        return spread(self.values) + (f" {self.difference.stars}" if self.difference and self.difference.stars else "")


def spread(values: Sequence[float]) -> str:
    """Formats the mean and standard deviation as in tables: `71.2 ± 0.4`; for a single value, only the value."""
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{deviation}"


def compare(rows: Mapping[str, Sequence[Results]], metrics: Sequence[str] | None = None) -> list[Score]:
    """Compares rows, name -> the results of each seed, on every test set and language that they have in common; the
    scores are in the order of test set, language, row and metric."""
    runs = [run for results in rows.values() for run in results]
    common = [key for key in runs[0].scores if all(key in run.scores for run in runs)]
    if not common:
        raise InputError(f"{', '.join(run.name for run in runs)} have no test set and language in common")
    for key in common:
        _check_same_queries(key, runs)
    known = [name for name in runs[0].scores[common[0]] if all(name in run.scores[common[0]] for run in runs)]
    if unknown := [name for name in metrics or () if name not in known]:
        raise InputError(f"the metric {unknown[0]!r} is not in all runs; available: {', '.join(known)}")
    first, scores = next(iter(rows.values())), []
    for test_set, language, keys in _entries(common):
        for row, results in rows.items():
            for metric in metrics or known:
                parts = [
                    [run.scores[key][metric].value for key in keys if metric in run.scores[key]] for run in results
                ]
                if all(len(values) == len(keys) for values in parts):
                    difference = None if results is first else _difference(first, results, keys, metric)
                    means = [statistics.fmean(values) for values in parts]
                    scores.append(Score(test_set, language, row, metric, means, difference))
    return scores


def _entries(common: Sequence[Key]) -> Iterator[tuple[str, str, list[Key]]]:
    """The languages of each test set, followed by their mean: test set, language or `mean`, and keys."""
    for test_set in dict.fromkeys(name for name, _ in common):
        keys = [key for key in common if key[0] == test_set]
        yield from ((*key, [key]) for key in keys)
        if len(keys) > 1:
            yield test_set, "mean", keys


def without_ranks(rows: Mapping[str, Sequence[Results]]) -> list[str]:
    """The names of the runs that have no ranks of queries although they were evaluated by ranking."""
    return [
        run.name
        for results in rows.values()
        for run in results
        if any(not _OF_RANKS.keys().isdisjoint(run.scores[key]) and not run.ranks_of(key) for key in run.scores)
    ]


def paired_bootstrap(*contributions: np.ndarray, resamples: int = RESAMPLES, seed: int = 0) -> Difference:
    """The difference of two means by the paired bootstrap, from the contribution of each image to it, [n_images];
    several arrays are of several sets of images, which are resampled separately."""
    random, drawn = np.random.default_rng(seed), np.zeros(resamples)
    for each in contributions:
        values, counts = np.unique(each, return_counts=True)
        # The sum only depends on how often each value is drawn.
        drawn = drawn + random.multinomial(len(each), counts / counts.sum(), size=resamples) @ values
    less = min(int(np.sum(drawn <= 0)), int(np.sum(drawn >= 0)))
    low, high = np.percentile(drawn, _INTERVAL)
    p = min(1.0, 2 * (less + 1) / (resamples + 1))
    return Difference(float(sum(each.sum() for each in contributions)), float(low), float(high), p)


def image_contributions(runs: Sequence[QueryRanks], metric: str) -> np.ndarray:
    """The contribution of each image and its texts to a metric, averaged over runs of the same queries, [n_images];
    the sum is the metric in percent. Metrics are those of `evaluate_retrieval`, and means of them."""
    contributions = []
    for name in _OF_RANKS[metric]:
        direction, _, k = name.partition("_r")
        is_text = direction == "t2i"
        if not is_text and not runs[0].image_to_text.any():
            continue
        ranks = np.stack([run.text_to_image if is_text else run.image_to_text for run in runs])  # [runs, n]
        found = ((ranks >= 1) & (ranks <= int(k))).mean(0) * 100 / max(1, int((ranks[0] > 0).sum()))
        n_images = len(runs[0].image_to_text)
        contributions.append(np.bincount(runs[0].image_of_text, found, minlength=n_images) if is_text else found)
    return np.mean(contributions, axis=0)


def _difference(
    first: Sequence[Results], second: Sequence[Results], keys: Sequence[Key], metric: str
) -> Difference | None:
    """Returns the difference between two rows in the mean over languages, or None without ranks for the metric.
    Languages that search the same images are resampled together."""
    if metric not in _OF_RANKS or not all(run.ranks_of(key) for run in (*first, *second) for key in keys):
        return None
    languages_with: dict[str, list[Key]] = {}
    for key in keys:
        languages_with.setdefault(_ranks([first[0]], key)[0].images, []).append(key)

    def contributions(runs: Sequence[Results], members: list[Key]) -> np.ndarray:
        return np.sum([image_contributions(_ranks(runs, key), metric) for key in members], axis=0) / len(keys)

    return paired_bootstrap(
        *(contributions(second, members) - contributions(first, members) for members in languages_with.values())
    )


def _ranks(runs: Sequence[Results], key: Key) -> list[QueryRanks]:
    return [ranks for run in runs if (ranks := run.ranks_of(key)) is not None]


def _check_same_queries(key: Key, runs: Sequence[Results]) -> None:
    """Raises an error if the counts or digests of runs show that their queries differ."""
    seen: dict[str, dict[Any, str]] = {}
    for run in runs:
        for name, each in run.scores[key].items():
            if each.n:
                seen.setdefault(f"the number of queries of {name}", {})[each.n] = run.name
        for ranks in _ranks([run], key):
            seen.setdefault("the digest of texts and images", {})[ranks.queries[:16]] = run.name
    for what, found in seen.items():
        if len(found) > 1:
            (one, name), (other, second), *_ = found.items()
            raise InputError(
                f"{name} and {second} were evaluated on different queries ({', '.join(key)}: {what} is {one} and "
                f"{other}), so their results cannot be compared"
            )

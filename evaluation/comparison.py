"""Comparing models: the mean and the standard deviation over seeds, and whether differences are significant.

A row is a model that was trained with one or several seeds. Its score is the mean over its seeds. The paired bootstrap
(Efron & Tibshirani 1993) tests the difference from the first row: it resamples the queries with replacement, in the
same way for both rows, and computes the difference each time. It resamples images with all of their texts, in all
languages, because texts about the same image are not independent. If each language searches different images, images
are resampled within each language (a stratified bootstrap). The test is about other queries for the same trained
models; the standard deviation is about other seeds.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..utils.errors import InputError
from .ranking import RECALL_AT, QueryRanks

RESAMPLES = 10_000
SIGNIFICANT = {0.001: "***", 0.01: "**", 0.05: "*"}
_INTERVAL = (2.5, 97.5)  # percentiles
_RECALLS = [f"{direction}_r{k}" for direction in ("t2i", "i2t") for k in RECALL_AT]
# The metrics that can be computed from ranks, as means of recalls. For labels, the rank of the correct label is used
# (`QueryRanks`).
_OF_RANKS = {name: [name] for name in _RECALLS}
_OF_RANKS |= {f"r{k}": [f"t2i_r{k}", f"i2t_r{k}"] for k in RECALL_AT}
_OF_RANKS |= {"mean_recall": _RECALLS, "accuracy": ["t2i_r1"], "top1": ["t2i_r1"], "top5": ["t2i_r5"]}

Key = tuple[str, str]  # test set, language


@dataclass(frozen=True)
class RunResults:
    """The results of one run: its name in errors, its scores by test set and language, and then by metric, the ranks
    of its queries, and test set -> name of a mean -> its languages."""

    name: str
    scores: Mapping[Key, Mapping[str, float]]
    ranks: Mapping[Key, QueryRanks] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)


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
        """`*` for p < .05, `**` for p < .01, `***` for p < .001."""
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


def compare(rows: Mapping[str, Sequence[RunResults]], metrics: Sequence[str] | None = None) -> list[Score]:
    """Compares rows, name -> the results of each seed, on every test set and language that they have in common; the
    scores are in the order of test set, language, row and metric."""
    runs = [run for results in rows.values() for run in results]
    common = [key for key in runs[0].scores if all(key in run.scores for run in runs)]
    if not common:
        raise InputError(f"{', '.join(run.name for run in runs)} have no test set and language in common")
    for key in common:
        _check_same_queries(key, runs)
    known = [name for name in _names(runs[0].scores[common[0]]) if all(name in run.scores[common[0]] for run in runs)]
    for name in metrics or ():
        if name not in known:
            raise InputError(f"the metric {name!r} is not in all runs; available: {', '.join(known)}")
    return list(_scores(rows, _entries(runs[0], common), list(metrics or known)))


def without_ranks(rows: Mapping[str, Sequence[RunResults]]) -> list[str]:
    """Returns the names of the runs that have no ranks of queries although they were evaluated by ranking."""
    runs = [run for results in rows.values() for run in results]
    return [
        run.name
        for run in runs
        if any(not _OF_RANKS.keys().isdisjoint(run.scores[key]) and key not in run.ranks for key in run.scores)
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
    names = [name for name in _OF_RANKS[metric] if name.startswith("t2i") or runs[0].image_to_text.any()]
    return np.mean([_recall_contributions(runs, name) for name in names], axis=0)


def _recall_contributions(runs: Sequence[QueryRanks], metric: str) -> np.ndarray:
    direction, _, k = metric.partition("_r")
    ranks = np.stack([run.text_to_image if direction == "t2i" else run.image_to_text for run in runs])  # [runs, n]
    found = ((ranks >= 1) & (ranks <= int(k))).mean(0) * 100 / max(1, int((ranks[0] > 0).sum()))
    n_images = len(runs[0].image_to_text)
    return found if direction == "i2t" else np.bincount(runs[0].image_of_text, found, minlength=n_images)


def _entries(run: RunResults, common: Sequence[Key]) -> Iterator[tuple[str, str, list[Key]]]:
    """The languages of each test set, followed by the means: test set, language or name of the mean, and keys."""
    for test_set in dict.fromkeys(name for name, _ in common):
        keys = [key for key in common if key[0] == test_set]
        yield from ((*key, [key]) for key in keys)
        for name, languages in run.groups.get(test_set, {}).items():
            members = [key for key in keys if key[1] in languages]
            if len(members) > 1:
                yield test_set, name, members


def _scores(
    rows: Mapping[str, Sequence[RunResults]],
    entries: Iterator[tuple[str, str, list[Key]]],
    metrics: Sequence[str],
) -> Iterator[Score]:
    first = next(iter(rows.values()))
    for test_set, language, keys in entries:
        for row, results in rows.items():
            for metric in metrics:
                parts = [[run.scores[key].get(metric) for key in keys] for run in results]
                if any(value is None for values in parts for value in values):
                    continue
                values = [statistics.fmean(float(value or 0) for value in values) for values in parts]
                difference = None if results is first else _difference(first, results, keys, metric)
                yield Score(test_set, language, row, metric, values, difference)


def _difference(
    first: Sequence[RunResults], second: Sequence[RunResults], keys: Sequence[Key], metric: str
) -> Difference | None:
    """The difference between two rows; None if the metric cannot be computed from ranks, or ranks are missing."""
    before, after = (_contributions(row, keys, metric) for row in (first, second))
    if before is None or after is None:
        return None
    return paired_bootstrap(*(late - early for early, late in zip(before, after, strict=True)))


def _contributions(runs: Sequence[RunResults], keys: Sequence[Key], metric: str) -> list[np.ndarray] | None:
    """Like `image_contributions`, for the mean over languages: one array for the languages that search the same
    images; None if the metric cannot be computed from ranks or ranks are missing."""
    if metric not in _OF_RANKS or not all(key in run.ranks for run in runs for key in keys):
        return None
    languages_with: dict[str, list[Key]] = {}
    for key in keys:
        languages_with.setdefault(runs[0].ranks[key].images, []).append(key)
    return [
        np.sum([image_contributions([run.ranks[key] for run in runs], metric) for key in members], axis=0) / len(keys)
        for members in languages_with.values()
    ]


def _check_same_queries(key: Key, runs: Sequence[RunResults]) -> None:
    """Raises an error if the counts or digests of runs show that their queries differ."""
    place = f"{key[0]}, {key[1]}"
    everything = {name: number for run in runs for name, number in run.scores[key].items()}
    metrics = _names(everything)
    counts = [name for name in everything if name not in metrics and name != "n_templates"]  # prompts may differ
    for count in ("n_texts", *counts):
        sizes = {run.scores[key][count]: run.name for run in runs if count in run.scores[key]}
        if len(sizes) > 1:
            (one, name), (other, second), *_ = sizes.items()
            raise InputError(
                f"{name} and {second} were evaluated on different queries ({place}: {count} is {one:.0f} and "
                f"{other:.0f}), so their results cannot be compared"
            )
    digests = {run.ranks[key].queries: run.name for run in runs if key in run.ranks}
    if len(digests) > 1:
        name, second, *_ = digests.values()
        raise InputError(
            f"{name} and {second} were evaluated on different queries ({place}: the texts or the images differ), "
            "so their results cannot be compared"
        )


def _names(scores: Mapping[str, float]) -> list[str]:
    """Returns the metrics among the numbers of a report; the other numbers are counts."""
    return [name for name in scores if not name.startswith("n_") and name != "n"]

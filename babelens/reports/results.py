"""The results of a run as a report shows them: a chart of bars for each test set, with all numbers in a table."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import langcodes
from langcodes.registry_parser import parse_registry

from ..evaluation.comparison import Key, Score, compare, score_interval, spread
from ..evaluation.emoji import GROUP_TITLES, TITLES
from ..evaluation.query_ranks import CAPTIONS
from .charts import Bar, ticks
from .sources import Evaluation

# The metric of the bars, the first of these that the results have.
_SHOWN = ("mean_recall", "accuracy", "bleu")
_WITH_CHANCE = "t2i_r10"  # of which a random ranking's is known
_METRICS = {
    **{
        f"{key}_r{k}": f"{title} R@{k}"
        for key, title in {"t2i": "text→image", "i2t": "image→text"}.items()
        for k in (1, 5, 10)
    },
    "mean_recall": "mean recall",
}
_EQUAL_TEXTS = "_equal_texts"


@dataclass(frozen=True)
class BarGroup:
    """The languages of a test set that a mean is taken of, and the mean."""

    title: str
    bars: list[Bar]


@dataclass(frozen=True)
class TestSet:
    """A test set as a report shows it.

    Args:
        name: by which other parts of the report refer to it.
        title: a heading.
        metric: the name of the metric of the bars.
        groups: the bars.
        limit: the end of the bars' axis.
        axis: the numbers on it.
        chance: the metric of a random ranking, where it is known.
        sizes: how many images and texts there are, in words.
        columns, rows: all numbers: the names of the metrics; a language with its cells.
    """

    name: str
    title: str
    metric: str
    groups: list[BarGroup]
    limit: float
    axis: list[float]
    chance: float | None
    sizes: str
    columns: list[str]
    rows: list[tuple[str, list[str]]]

    @property
    def means(self) -> list[Bar]:
        """The bars of means."""
        return [bar for group in self.groups for bar in group.bars if bar.is_mean]

    @property
    def bars(self) -> Mapping[str, Bar]:
        """The bar of each language."""
        return {bar.label: bar for group in self.groups for bar in group.bars if not bar.is_mean}

    @property
    def has_intervals(self) -> bool:
        return any(bar.interval for group in self.groups for bar in group.bars)


def test_sets(evaluation: Evaluation) -> Iterator[TestSet]:
    """The test sets of a file of results.

    Raises:
        ComparisonError: when runs with other seeds were evaluated on other queries.
    """
    scores = compare({evaluation.name: evaluation.runs})
    for name in dict.fromkeys(score.test_set for score in scores):
        yield _test_set(evaluation, name, [score for score in scores if score.test_set == name])


def _test_set(evaluation: Evaluation, name: str, scores: Sequence[Score]) -> TestSet:
    metrics = list(dict.fromkeys(score.metric for score in scores if not score.metric.endswith(_EQUAL_TEXTS)))
    details = evaluation.details.get(name, {})
    chance = details.get("chance", {}).get(_WITH_CHANCE)
    metric = _WITH_CHANCE if chance else next((each for each in _SHOWN if each in metrics), metrics[0])
    values = {score.language: score for score in scores if score.metric == metric}
    groups = [
        BarGroup(_group_title(title), list(_bars(evaluation, name, title, languages, values, metric)))
        for title, languages in evaluation.runs[0].groups[name].items()
    ]
    groups = [group for group in groups if group.bars]
    lengths = [
        length for group in groups for bar in group.bars for length in (bar.value, *(bar.interval or ()), *bar.dots)
    ]
    axis = ticks(0, max(lengths, default=0))
    return TestSet(
        name=f"{evaluation.name}-{name}",
        title=_title(evaluation, name, details),
        metric=metric_title(metric),
        groups=groups,
        limit=axis[-1],
        axis=axis,
        chance=chance,
        sizes=_sizes(evaluation, name),
        columns=[metric_title(each) for each in metrics],
        rows=_rows(scores, metrics),
    )


def metric_title(metric: str) -> str:
    """The name of a metric for readers."""
    return _METRICS.get(metric, metric.replace("_", " "))


def _bars(
    evaluation: Evaluation, name: str, title: str, languages: Sequence[str], values: Mapping[str, Score], metric: str
) -> Iterator[Bar]:
    """The bars of a group; a score that is not a number has none, and is in the table alone."""
    runs = evaluation.runs
    drawn = {language for language, score in values.items() if math.isfinite(score.mean)}
    for language in languages:
        if language in drawn:
            yield _bar(values[language], score_interval(runs, [(name, language)], metric), is_mean=False)
    if title in drawn:
        keys: list[Key] = [(name, language) for language in languages if language in values]
        yield _bar(values[title], score_interval(runs, keys, metric), is_mean=True)


def _bar(score: Score, interval: tuple[float, float] | None, *, is_mean: bool) -> Bar:
    label = "mean" if is_mean else score.language
    name = "" if is_mean else language_facts(score.language).name
    dots = score.values if len(score.values) > 1 else ()
    return Bar(label, "" if name == label else name, score.mean, interval, dots, is_mean)


def _rows(scores: Sequence[Score], metrics: Sequence[str]) -> list[tuple[str, list[str]]]:
    cells = {(score.language, score.metric): spread(score.values) for score in scores}
    languages = dict.fromkeys(score.language for score in scores)
    return [(language, [cells.get((language, metric), "") for metric in metrics]) for language in languages]


def _group_title(title: str) -> str:
    """The title of a group of languages from that of its mean: `mean, image pairs`."""
    group = title.partition(", ")[2]
    return {
        known: f"Languages with {known}" for known in GROUP_TITLES.values() if known != GROUP_TITLES["unseen"]
    }.get(group, "Languages never seen" if group else "")


def _title(evaluation: Evaluation, name: str, details: Mapping[str, Any]) -> str:
    if name in TITLES and details:
        return f"Emoji: {TITLES[name].lower()} ({details['vendor']}, {details['split']} split)"
    if name == CAPTIONS:
        return "Validation data" if evaluation.name == "validation" else evaluation.name
    return name if name == evaluation.name else f"{evaluation.name}: {name}"


def _sizes(evaluation: Evaluation, name: str) -> str:
    """How many images and texts there are; of several languages, from the fewest to the most."""
    numbers = [found for (test_set, _), found in evaluation.runs[0].scores.items() if test_set == name]
    parts = []
    for key, title in {"n_images": "images", "n_texts": "texts in each language", "n": "examples"}.items():
        if counts := sorted({round(each[key]) for each in numbers if key in each}):
            parts.append(f"{' to '.join(f'{count:,}' for count in dict.fromkeys((counts[0], counts[-1])))} {title}")
    return " and ".join(parts)


# ---- Languages ----
# What a report tells about a language: its English name and its script, both from IANA's registry of subtags.

_VARIANT = re.compile(r"(\w+) \((\w+) variant\)")


@dataclass(frozen=True)
class LanguageFacts:
    """A language as a report shows it.

    Args:
        tag: its BCP-47 tag.
        name: its English name; the tag where there is none.
        script: the English name of the script that it is usually written in.
    """

    tag: str
    name: str
    script: str


def language_facts(tag: str) -> LanguageFacts:
    """The facts of a language; of a pair of languages, such as `en-de`, or anything else, its tag."""
    if not is_language(tag):
        return LanguageFacts(tag, tag, "")
    language, names = langcodes.Language.get(tag), _names()
    name = names.get(("language", language.language or ""), tag)
    script = language.maximize().script or ""
    details = [names.get(("script", language.script), language.script)] if language.script else []
    details += [names.get(("region", language.territory), language.territory)] if language.territory else []
    return LanguageFacts(tag, f"{name} ({', '.join(details)})" if details else name, names.get(("script", script), ""))


def is_language(tag: str) -> bool:
    """Whether this is the canonical tag of a language. `en-de`, of translations from English, is none: the tag of
    Germany's English is `en-DE`."""
    return langcodes.tag_is_valid(tag) and langcodes.standardize_tag(tag) == tag


@cache
def _names() -> dict[tuple[str, str], str]:
    """(type, subtag) -> the registry's first description, without remarks such as "(macrolanguage)"."""
    return {
        (entry["Type"], entry["Subtag"]): _short(entry["Description"][0])
        for entry in parse_registry()
        if "Subtag" in entry and entry["Type"] in ("language", "script", "region")
    }


def _short(description: str) -> str:
    if variant := _VARIANT.fullmatch(description):  # "Han (Traditional variant)"
        return f"{variant[2]} {variant[1]}"
    return description.partition(" (")[0].removeprefix("Modern ")

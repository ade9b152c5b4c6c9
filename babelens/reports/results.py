"""The results of a run as a report shows them: a chart of bars for each test set, with all numbers in a table; and the
files of a run's folder that they are read from."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import langcodes
from huggingface_hub.repocard import metadata_load
from langcodes.registry_parser import parse_registry
from yaml import YAMLError

from ..configuration.errors import ComparisonError
from ..evaluation.comparison import Key, RunResults, Score, compare, score_interval, spread
from ..evaluation.emoji import GROUP_TITLES, TITLES
from ..evaluation.found_images import Gallery, gallery_file, read_gallery
from ..evaluation.query_ranks import CAPTIONS
from ..model_cards.card_text import publishable
from ..workflows.reporting import EVALUATION, FACTS, outdated_results
from ..workflows.run_results import finished_runs, read_file, result_files
from .charts import Bar, ticks

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
_CARD = "README.md"


# ---- What a folder, or a file of results, holds ----


@dataclass(frozen=True)
class Evaluation:
    """A file of results, from every run that has it.

    Args:
        name: its name without the ending, such as `validation` or `emoji`.
        runs: the results of each run.
        details: what the results state about a test set beside its languages, such as the recalls of a random ranking.
        gallery: some queries with their images, of the first run that has them.
    """

    name: str
    runs: list[RunResults]
    details: Mapping[str, Mapping[str, Any]]
    gallery: Gallery | None


@dataclass(frozen=True)
class Run:
    """What is known of one run.

    Args:
        name: its folder.
        card: the facts of its model card: all of them (`run_facts`), or those of the card's metadata for a model that
            no recipe trained.
        memory: the most memory that it took, in gigabytes.
        logs: the name and the log of each of its stages.
    """

    name: str
    card: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    logs: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Sources:
    """What a report is about.

    Args:
        name: the name of the folder or file.
        runs: the runs, one for each seed; none for a file of results.
        evaluations: their results.
    """

    name: str
    runs: list[Run]
    evaluations: list[Evaluation]


def read_sources(path: Path) -> Sources:
    """What a path holds: a run's folder, a folder with a run for each seed, or a file of `babelens evaluate --output`.

    Raises:
        ComparisonError: for a path without results, and for a file that is damaged.
    """
    if path.is_file():
        evaluation = _evaluation(path.stem, [path])
        if evaluation is None:
            raise ComparisonError(f"{path} has no results of a test set or of validation data")
        return Sources(path.stem, [], [evaluation])
    folders = finished_runs(path)
    files: dict[str, list[Path]] = {}
    for folder in folders:
        for file in result_files(folder):
            files.setdefault(file.stem, []).append(file)
    # What only some of the seeds have cannot be averaged over them.
    evaluations = [_evaluation(name, each) for name, each in files.items() if len(each) == len(folders)]
    runs = [_run(folder) for folder in folders]
    return Sources(path.resolve().name, runs, [evaluation for evaluation in evaluations if evaluation])


def _evaluation(name: str, files: list[Path]) -> Evaluation | None:
    """The results of a file; None for one that holds something else."""
    runs = [read_file(file) for file in files]
    if not all(run.scores for run in runs):
        return None
    galleries = (read_gallery(gallery_file(file)) for file in files)
    return Evaluation(name, runs, _details(files[0]), next((each for each in galleries if each), None))


def _details(file: Path) -> dict[str, Mapping[str, Any]]:
    parts = json.loads(file.read_text(encoding="utf-8"))
    return {name: part for name, part in parts.items() if isinstance(part, dict) and "groups" in part}


def _run(folder: Path) -> Run:
    name, facts = folder.resolve().name, folder / EVALUATION / f"{FACTS}.json"
    if facts.is_file() and facts.name not in outdated_results(folder):
        try:
            return Run(name=name, **publishable(json.loads(facts.read_text(encoding="utf-8"))))
        except (ValueError, TypeError) as error:
            raise ComparisonError(
                f"{facts} is damaged, so that the facts of the run cannot be read: {error}"
            ) from error
    return Run(name, _card_metadata(folder))


def _card_metadata(folder: Path) -> dict[str, Any]:
    """What the metadata of a model card tell; nothing without a card."""
    if not (folder / _CARD).is_file():
        return {}
    try:
        data = metadata_load(folder / _CARD) or {}
    except (ValueError, YAMLError) as error:
        raise ComparisonError(f"{folder / _CARD} has metadata that cannot be read: {error}") from error
    languages = data.get("language_bcp47") or data.get("language") or []
    return {
        "license": data.get("license"),
        "license_name": data.get("license_name"),
        "languages": [languages] if isinstance(languages, str) else languages,
    }


# ---- Test sets ----


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

"""`results.json`: the numbers of one model, as `babelens train` and `babelens evaluate --output` write them, a list
with an entry for each number:

    {"dataset": "multi30k", "split": "test", "language": "de", "metric": "t2i_r10", "value": 85.2, "n": 5000,
     "command": "babelens evaluate captions …"}

`dataset` names the data and, if a report has groups of languages, the group. `n` is the number of queries. A run
writes `results.json` to its model's folder as the last step: a folder with this file is a finished run. The ranks of
single queries, from which `compare` computes significance, are in `results.ranks.npz`, by `dataset/language`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..utils.errors import InputError
from ..utils.files import atomic_file
from .comparison import RunResults
from .emoji import GROUP_TITLES, TITLES
from .ranking import CAPTIONS, QueryRanks, ranks_file, read_ranks, write_ranks

RESULTS = "results.json"
IMAGES = "images"  # the `language` of a result without texts, such as nearest neighbors
_COUNTS = ("n_texts", "n_images", "n_candidates", "n")  # the first that is present counts a metric's queries


@dataclass(frozen=True)
class Measurement:
    """One number. `value` is in percent for recalls and accuracies; `n` is the number of queries, 0 if unknown."""

    dataset: str
    split: str
    language: str
    metric: str
    value: float
    n: int
    command: str

    @property
    def test_set(self) -> str:
        return test_set(self.dataset, self.split)


def test_set(dataset: str, split: str = "") -> str:
    return f"{dataset}, {split}" if split else dataset


def measurements(
    scores: Mapping[str, Mapping[str, Any]], *, dataset: str, split: str = "", command: str = ""
) -> list[Measurement]:
    """Converts a report by language and metric; counts (`n_texts`, …) become `n`, and nested values are left out."""
    found = []
    for language, numbers in scores.items():
        for metric, value in numbers.items():
            if isinstance(value, int | float) and metric != "n" and not metric.startswith("n_"):
                names = ("n_images", *_COUNTS) if metric.startswith("i2t") else _COUNTS
                count = int(next((numbers[name] for name in names if name in numbers), 0))
                found.append(Measurement(dataset, split, language, metric, float(value), count, command))
    return found


def emoji_measurements(report: Mapping[str, Any], *, command: str = "") -> list[Measurement]:
    """Converts `EmojiBenchmark.report` to measurements, with a dataset for each of the four questions."""
    return [
        found
        for question, answers in report.items()
        for group, answer in answers["groups"].items()
        for found in measurements(
            answer["languages"], dataset=emoji_dataset(question, group), split=answers["split"], command=command
        )
    ]


def emoji_ranks(report: Mapping[str, Any], ranks: Mapping[str, QueryRanks]) -> dict[str, QueryRanks]:
    """Converts `EmojiBenchmark.ranks` to the test sets of `emoji_measurements`."""
    return {
        f"{test_set(emoji_dataset(question, group), answers['split'])}/{language}": ranks[f"{question}/{language}"]
        for question, answers in report.items()
        for group, answer in answers["groups"].items()
        for language in answer["languages"]
    }


def emoji_dataset(question: str, group: str) -> str:
    return f"Emoji, {TITLES[question].lower()} ({GROUP_TITLES[group]})"


# The parts of the reports of `evaluate --consistency` and `--translate-test`, of classification, and of a benchmark.
RECALLS, CONSISTENCY, TRANSLATE_TEST = "recalls", "consistency", "translate_test"
ZERO_SHOT, GROUPS, NEIGHBORS = "zero_shot", "groups", "knn"
BENCHMARK = "benchmark"


def report_measurements(
    report: Mapping[str, Any], *, dataset: str, split: str = "", command: str = ""
) -> list[Measurement]:
    """Converts the report of any job of `babelens evaluate`; other numbers than its recalls, such as the recalls of
    joint queries, are left out. `dataset` and `split` name the data, if the report does not."""
    if BENCHMARK in report:
        report = report["results"]
    report = {name: part for name, part in report.items() if name not in (CONSISTENCY, TRANSLATE_TEST)}
    report = report.get(RECALLS, report)
    named = {"split": split, "command": command}
    if ZERO_SHOT in report or NEIGHBORS in report:
        of_images = {IMAGES: {k: v for k, v in report.get(NEIGHBORS, {}).items() if k != "neighbors"}}
        return [
            *measurements(report.get(ZERO_SHOT, {}), dataset=dataset, **named),
            *measurements(of_images, dataset=f"{dataset}, {NEIGHBORS}", **named),
        ]
    if all("groups" in part for part in report.values()):
        return emoji_measurements(report, command=command)
    if all(isinstance(each, int | float) for part in report.values() for each in part.values()):
        return measurements(report, dataset=dataset, **named)
    return [each for name, part in report.items() for each in measurements(part, dataset=name, command=command)]


def report_ranks(
    report: Mapping[str, Any], ranks: Mapping[str, QueryRanks], *, dataset: str, split: str = ""
) -> dict[str, QueryRanks]:
    """Converts the ranks of a report's queries to the test sets of `report_measurements`."""
    answers = {name: part for name, part in report.items() if isinstance(part, dict) and "vendor" in part}
    if answers:
        return emoji_ranks(answers, ranks)
    names = dict.fromkeys((CAPTIONS, ZERO_SHOT), test_set(dataset, split))
    names[NEIGHBORS] = test_set(f"{dataset}, {NEIGHBORS}", split)
    parts = ((*key.rpartition("/")[::2], each) for key, each in ranks.items())
    return {f"{names.get(name, name)}/{language}": each for name, language, each in parts}


def write_results(
    file: str | Path, found: Iterable[Measurement], ranks: Mapping[str, QueryRanks] | None = None
) -> None:
    """Adds measurements to a file of results, and the ranks of queries, by `test_set/language`; replaces measurements
    with the same dataset, split, language and metric."""
    path = Path(file)
    everything = {
        (each.dataset, each.split, each.language, each.metric): each
        for each in [*(read_results(path) if path.is_file() else []), *found]
    }
    if ranks:
        all_ranks = read_ranks(ranks_file(path)) | dict(ranks)
        with atomic_file(ranks_file(path)) as scratch:
            write_ranks(scratch, all_ranks)
    with atomic_file(path) as scratch:
        lines = ",\n".join(json.dumps(asdict(each), ensure_ascii=False) for each in everything.values())
        scratch.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def read_results(path: str | Path) -> list[Measurement]:
    """Reads the measurements of a file, or of the `results.json` in a folder; empty for a folder without this file."""
    file = Path(path)
    if file.is_dir():
        file /= RESULTS
        if not file.is_file():
            return []
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
        return [Measurement(**{each.name: entry[each.name] for each in fields(Measurement)}) for entry in entries]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{file} is not a file of results ({type(error).__name__}: {error})") from error


# ---- Rows of a comparison ----


def read_rows(paths: Sequence[str | Path]) -> dict[str, list[RunResults]]:
    """Reads the results of each path by name: one for a model's folder or a file of results; for a folder of model
    folders, one for each, as the seeds of one row."""
    rows = {}
    for row, source in named_rows(paths).items():
        path = Path(source)
        file = path if path.is_file() else path / RESULTS
        rows[row] = [_run(each) for each in ([file] if file.is_file() else sorted(path.glob(f"*/{RESULTS}")))]
        if not any(run.scores for run in rows[row]):
            raise InputError(
                f"{path} has no results: it is neither a finished run nor a file from `evaluate --output`"
            )
    return rows


def named_rows(sources: Sequence[str | Path]) -> dict[str, str]:
    """Folders, files or Hub ids by the names of their rows: the last part of a path, if it is unique."""
    names = [Path(source).resolve().name if Path(source).exists() else str(source) for source in sources]
    rows: dict[str, str] = {}
    for source, name in zip(map(str, sources), names, strict=True):
        row = name.removesuffix(".json") if names.count(name) == 1 else source
        if row in rows:
            raise InputError(f"{source} is named twice")
        rows[row] = source
    return rows


def _run(file: Path) -> RunResults:
    scores: dict[tuple[str, str], dict[str, float]] = {}
    groups: dict[str, dict[str, list[str]]] = {}
    for each in read_results(file):
        numbers = scores.setdefault((each.test_set, each.language), {})
        numbers |= {each.metric: each.value, **({f"n_{each.metric}": each.n} if each.n else {})}
        groups.setdefault(each.test_set, {"mean": []})["mean"].append(each.language)
    ranks = read_ranks(ranks_file(file))
    by_key = {key: ranks["/".join(key)] for key in scores if "/".join(key) in ranks}
    return RunResults(str(file), scores, by_key, groups)

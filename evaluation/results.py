"""`results.json`: the numbers of one model, as `babelens train` and `babelens evaluate --output` write them, a list
with an entry for each number:

    {"dataset": "multi30k", "split": "test", "language": "de", "metric": "t2i_r10", "value": 85.2, "n": 5000,
     "command": "babelens evaluate captions …"}

`dataset` names the data and, if a report has groups of languages, the group. `n` is the number of queries. A run
writes `results.json` to its model's folder as the last step: a folder with this file is a finished run. The ranks of
single queries, from which `compare` computes significance, are in `results.ranks.npz`, by `dataset/language`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from ..utils.errors import InputError
from ..utils.files import atomic_file
from .emoji import GROUP_TITLES, TITLES
from .ranking import QueryRanks, ranks_file, read_ranks, write_ranks

RESULTS = "results.json"
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


def emoji_dataset(question: str, group: str) -> str:
    return f"Emoji, {TITLES[question].lower()} ({GROUP_TITLES[group]})"


Key = tuple[str, str]  # test set, language


@dataclass
class Results:
    """What was measured for one model, by test set and language, and then by metric; and the ranks of the queries, by
    `test_set/language`. `name` names the model or the file in errors, and `command` measured it."""

    name: str
    command: str = ""
    scores: dict[Key, dict[str, Measurement]] = field(default_factory=dict)
    ranks: dict[str, QueryRanks] = field(default_factory=dict)

    def add(
        self,
        scores: Mapping[str, Mapping[str, Any]],
        ranks: Mapping[str, QueryRanks] | None = None,
        *,
        dataset: str,
        split: str = "",
    ) -> None:
        """Adds a report by language and metric, and the ranks of its queries by language. Counts (`n_texts`, …) become
        `n`, and nested values are left out."""
        for language, numbers in scores.items():
            for metric, value in numbers.items():
                if isinstance(value, int | float) and metric != "n" and not metric.startswith("n_"):
                    names = ("n_images", *_COUNTS) if metric.startswith("i2t") else _COUNTS
                    count = int(next((numbers[name] for name in names if name in numbers), 0))
                    found = Measurement(dataset, split, language, metric, float(value), count, self.command)
                    self.scores.setdefault((found.test_set, language), {})[metric] = found
        self.ranks |= {f"{test_set(dataset, split)}/{language}": each for language, each in (ranks or {}).items()}

    def ranks_of(self, key: Key) -> QueryRanks | None:
        """The ranks of the queries of a test set in a language."""
        return self.ranks.get("/".join(key))

    def add_emoji(self, report: Mapping[str, Any], ranks: Mapping[str, QueryRanks]) -> None:
        """Adds the report and the ranks of an `EmojiBenchmark`, with a dataset for each of the four questions."""
        for question, answers in report.items():
            for group, answer in answers["groups"].items():
                own = {language: ranks[f"{question}/{language}"] for language in answer["languages"]}
                dataset = emoji_dataset(question, group)
                self.add(answer["languages"], own, dataset=dataset, split=answers["split"])

    @classmethod
    def of_file(cls, file: Path) -> Self:
        """Reads what `save` wrote."""
        found = cls(str(file), ranks=read_ranks(ranks_file(file)))
        for each in read_results(file):
            found.scores.setdefault((each.test_set, each.language), {})[each.metric] = each
        return found

    def save(self, file: str | Path) -> None:
        """Adds the results to a file, and the ranks to the file next to it; replaces measurements with the same
        dataset, split, language and metric."""
        path = Path(file)
        measured = [each for by_metric in self.scores.values() for each in by_metric.values()]
        everything = {
            (each.dataset, each.split, each.language, each.metric): each
            for each in [*(read_results(path) if path.is_file() else []), *measured]
        }
        if self.ranks:
            all_ranks = read_ranks(ranks_file(path)) | self.ranks
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

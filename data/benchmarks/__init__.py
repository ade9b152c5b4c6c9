"""The catalog of published retrieval benchmarks: the files that each needs, its license, its protocol, and the figures
that papers report on it. The facts are in `entries/<name>.json`; `readers.coco` reads the files of a benchmark, and
`evaluation.benchmarks` runs its protocol.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ...utils.errors import CorpusError
from ...utils.languages import normalize_languages


@dataclass(frozen=True)
class NeededFile:
    """A file or folder in the folder of a benchmark. `path` may have `{language}`."""

    path: str
    holds: str
    origin: str


@dataclass(frozen=True)
class Figures:
    """A table of figures that a paper reports on a benchmark.

    Args:
        source: the paper and its table.
        columns: the languages, for a table by language; otherwise the metrics for English.
        rows: the name of each measured model -> its figure in each column; None for a missing figure.
        test_set: the test set of the benchmark.
        metric: the metric of a table by language; None for a table of metrics.
        ranking: how the paper counts recall from image to text: `standard` or `mla`, as in `evaluate_retrieval`. Our
            results are counted in the same way when compared with these figures.
        note: how the paper's measurement differs from the benchmark's.
    """

    source: str
    columns: tuple[str, ...]
    rows: dict[str, list[float | None]]
    test_set: str
    metric: str | None = None
    ranking: str = "standard"
    note: str = ""

    def place(self, column: str) -> tuple[str, str]:
        """Returns the language and the metric of a column."""
        return ("en", column) if self.metric is None else (column, self.metric)


@dataclass(frozen=True)
class Benchmark:
    """A published retrieval benchmark.

    Args:
        name: its name on the command line.
        title: its full name.
        languages: its languages, as BCP-47 tags.
        protocol: how it is evaluated, a key of `PROTOCOLS`.
        files: the files that its folder needs.
        license: the licenses of its captions and images.
        paper: the paper that published it.
        url: where its authors offer it.
        facts: other known facts about its data and its protocol, and open questions.
        figures: the figures of papers.
    """

    name: str
    title: str
    languages: tuple[str, ...]
    protocol: str
    files: list[NeededFile]
    license: str
    paper: str
    url: str
    facts: list[str]
    figures: list[Figures]

    def chosen(self, languages: str | Sequence[str] | None) -> tuple[str, ...]:
        """Returns the requested languages as canonical tags; by default all languages of the benchmark."""
        if languages is None:
            return self.languages
        tags = normalize_languages(languages if isinstance(languages, str) else list(languages))
        if absent := [tag for tag in tags if tag not in self.languages]:
            raise CorpusError(
                f"the benchmark {self.name} has no captions in {', '.join(absent)}; it has {', '.join(self.languages)}"
            )
        return tuple(tags)


# Protocol -> a sentence that describes it.
PROTOCOLS = {
    "retrieval": "Every caption searches all images, and every image all captions of its language.",
    "folds": "As `retrieval`, in five folds of 1,000 images in the order of the test set; recalls are the mean of the "
    "folds.",
    "crisscrossed": "Image-text, text-text and image-image retrieval with all positives that annotators found, and "
    "Spearman correlations with their ratings (STS, SIS, SITS).",
}


def benchmark_names() -> tuple[str, ...]:
    """Returns the names of all benchmarks, in alphabetical order."""
    return tuple(sorted(entry.name.removesuffix(".json") for entry in _entries().iterdir()))


@cache
def find_benchmark(name: str) -> Benchmark:
    """Returns the benchmark of this name, or raises a `CorpusError`."""
    if name not in benchmark_names():
        raise CorpusError(f"there is no benchmark {name!r}; there are {', '.join(benchmark_names())}")
    entry: dict[str, Any] = json.loads(_entries().joinpath(f"{name}.json").read_text(encoding="utf-8"))
    entry["languages"] = tuple(entry["languages"])
    entry["files"] = [NeededFile(**each) for each in entry["files"]]
    entry["figures"] = [
        Figures(**{"test_set": name, **each, "columns": tuple(each["columns"])}) for each in entry.get("figures", ())
    ]
    return Benchmark(name=name, **entry)


def _entries() -> Any:
    return files(__package__).joinpath("entries")

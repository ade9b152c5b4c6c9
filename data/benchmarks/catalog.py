"""The catalog of published retrieval benchmarks: what each needs on the disk, its license, its protocol, and the
figures that papers report on it.

The facts of a benchmark stand in `entries/<name>.json`. This module reads nothing else, so that they can be listed
without the packages that read images and texts; `reading` reads the files of a benchmark, and
`evaluation.benchmarks` runs its protocol.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ...utils.errors import BenchmarkError
from ...utils.languages import normalize_languages


@dataclass(frozen=True)
class NeededFile:
    """A file or folder that a benchmark needs.

    Args:
        path: its path in the folder of the benchmark; `{language}` stands for a language of the benchmark.
        holds: what it holds.
        origin: where it is from.
    """

    path: str
    holds: str
    origin: str


@dataclass(frozen=True)
class Figures:
    """A table of figures that a paper reports on a benchmark.

    Args:
        source: the paper and its table.
        columns: for a table by languages the languages, else the metrics of English.
        rows: what the paper measured, such as a model, and its figure in each column; None where it has none.
        metric: the metric of a table by languages; None for a table of metrics.
        test_set: the test set of the benchmark.
        ranking: how the paper counts recall from image to text: `standard` or `mla`, as in `evaluate_retrieval`. What
            is measured here is counted in the same way beside these figures.
        note: in what the paper's measurement differs from the benchmark's; empty if in nothing that is known.
    """

    source: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[float | None, ...]]
    metric: str | None
    test_set: str
    ranking: str
    note: str

    def place(self, column: str) -> tuple[str, str]:
        """The language and the metric of a column."""
        return ("en", column) if self.metric is None else (column, self.metric)


@dataclass(frozen=True)
class Benchmark:
    """A published retrieval benchmark.

    Args:
        name: its name on the command line.
        title: its name in full.
        languages: its languages, as BCP-47 tags.
        has_others: whether its files have captions in other languages as well, which can be asked for.
        protocol: how it is evaluated, a key of `PROTOCOLS`.
        files: what it needs in its folder.
        license: the licenses of its captions and images.
        paper: the paper that published it.
        url: where its authors offer it.
        facts: what else is known about its data and its protocol, and what is not.
        groups: names of groups of languages whose mean is reported, and their languages.
        figures: the figures of papers.
    """

    name: str
    title: str
    languages: tuple[str, ...]
    has_others: bool
    protocol: str
    files: tuple[NeededFile, ...]
    license: str
    paper: str
    url: str
    facts: tuple[str, ...]
    groups: dict[str, tuple[str, ...]]
    figures: tuple[Figures, ...]

    def chosen(self, languages: str | Sequence[str] | None) -> tuple[str, ...]:
        """The languages that are asked for, as canonical tags; by default all of the benchmark.

        Raises:
            LanguageTagError: for an unknown language.
            BenchmarkError: for a language that the benchmark does not have.
        """
        if languages is None:
            return self.languages
        tags = normalize_languages(languages if isinstance(languages, str) else list(languages))
        absent = [tag for tag in tags if tag not in self.languages]
        if absent and not self.has_others:
            raise BenchmarkError(
                f"the benchmark {self.name} has no captions in {', '.join(absent)}; it has {', '.join(self.languages)}"
            )
        return tuple(tags)


# How a benchmark is evaluated: the sentence that describes it.
PROTOCOLS = {
    "retrieval": "Every caption searches all images, and every image all captions of its language.",
    "folds": "As `retrieval`, in five folds of 1,000 images in the order of the test set; recalls are the mean of the "
    "folds.",
    "own_images": "As `retrieval`, but each language searches only the images that have a caption in it, so that each "
    "language has a gallery of its own.",
    "crisscrossed": "Image-text, text-text and image-image retrieval with all positives that annotators found, and "
    "Spearman correlations with their ratings (STS, SIS, SITS).",
    "translations": "Every sentence searches the English translations of its language, and every translation the "
    "sentences: `accuracy` and `accuracy_from_en`, in percent.",
}


def benchmark_names() -> tuple[str, ...]:
    """The names of all benchmarks, in alphabetical order."""
    return tuple(sorted(entry.name.removesuffix(".json") for entry in _entries().iterdir()))


@cache
def find_benchmark(name: str) -> Benchmark:
    """The benchmark of this name.

    Raises:
        BenchmarkError: for an unknown name.
    """
    if name not in benchmark_names():
        raise BenchmarkError(f"there is no benchmark {name!r}; there are {', '.join(benchmark_names())}")
    facts: dict[str, Any] = json.loads(_entries().joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return Benchmark(
        name=name,
        **{key: facts[key] for key in ("title", "protocol", "license", "paper", "url")},
        languages=tuple(facts["languages"]),
        has_others=facts.get("has_others", False),
        facts=tuple(facts["facts"]),
        files=tuple(NeededFile(**each) for each in facts["files"]),
        groups={group: tuple(languages) for group, languages in facts.get("groups", {}).items()},
        figures=tuple(_figures(name, each) for each in facts.get("figures", ())),
    )


def _figures(name: str, facts: dict[str, Any]) -> Figures:
    return Figures(
        source=facts["source"],
        columns=tuple(facts["columns"]),
        rows={row: tuple(values) for row, values in facts["rows"].items()},
        metric=facts.get("metric"),
        test_set=facts.get("test_set", name),
        ranking=facts.get("ranking", "standard"),
        note=facts.get("note", ""),
    )


def _entries() -> Any:
    return files(__package__).joinpath("entries")

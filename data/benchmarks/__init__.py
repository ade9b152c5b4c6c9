"""The catalog of published retrieval benchmarks, from `entries/<name>.json`: files, license, protocol, and figures of
papers. `readers.coco` reads the files of a benchmark, and `evaluation.benchmarks` runs its protocol."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from pydantic import TypeAdapter

from ...utils.errors import CorpusError
from ...utils.languages import normalize_languages

_ENTRIES = files(__package__).joinpath("entries")

# Protocol -> a sentence that describes it.
PROTOCOLS = {
    "retrieval": "Every caption searches all images, and every image all captions of its language.",
    "folds": "As `retrieval`, in five folds of 1,000 images in the order of the test set; recalls are the mean of the "
    "folds.",
    "crisscrossed": "Image-text, text-text and image-image retrieval with all positives that annotators found, and "
    "Spearman correlations with their ratings (STS, SIS, SITS).",
}


@dataclass(frozen=True)
class Figures:
    """A paper's table for a test set of a benchmark: measured model -> its figure in each column, or None."""

    source: str  # the paper and its table
    columns: tuple[str, ...]  # the languages of a table of one metric; otherwise the metrics for English
    rows: dict[str, list[float | None]]
    test_set: str
    metric: str | None = None
    ranking: str = "standard"  # or `mla`: how recall from image to text is counted, as in `evaluate_retrieval`
    note: str = ""  # how the paper's measurement differs from the benchmark's

    def place(self, column: str) -> tuple[str, str]:
        """Returns the language and the metric of a column."""
        return ("en", column) if self.metric is None else (column, self.metric)


@dataclass(frozen=True)
class Benchmark:
    """A published retrieval benchmark; `protocol` is a key of `PROTOCOLS`."""

    name: str
    title: str
    languages: tuple[str, ...]
    protocol: str
    files: list[dict[str, str]]  # the `path` (which may have `{language}`), what it `holds`, and its `origin`
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
                f"{self.name} has no captions in {', '.join(absent)}, but in {', '.join(self.languages)}"
            )
        return tuple(tags)


def benchmark_names() -> tuple[str, ...]:
    """Returns the names of all benchmarks, in alphabetical order."""
    return tuple(sorted(entry.name.removesuffix(".json") for entry in _ENTRIES.iterdir()))


@cache
def find_benchmark(name: str) -> Benchmark:
    """Returns the benchmark of this name, or raises a `CorpusError`."""
    if name not in benchmark_names():
        raise CorpusError(f"there is no benchmark {name!r}; there are {', '.join(benchmark_names())}")
    entry = json.loads(_ENTRIES.joinpath(f"{name}.json").read_text(encoding="utf-8"))
    figures = [{"test_set": name, **each} for each in entry.pop("figures", ())]
    return TypeAdapter(Benchmark).validate_python({"name": name, "figures": figures, **entry})

"""Writes docs/reference/benchmarks.md from the catalog of benchmarks: `python docs/tools/benchmarks_page.py`.

`tests/packaging/test_benchmarks_page.py` checks that the page is what the catalog says.
"""

from pathlib import Path

from babelens.data.benchmarks.catalog import PROTOCOLS, Benchmark, Figures, benchmark_names, find_benchmark

PAGE = Path(__file__).parents[1] / "reference" / "benchmarks.md"
_HEAD = """\
<!-- Written by docs/tools/benchmarks_page.py from data/benchmarks/entries/. Change the entries, not this page. -->
# Published benchmarks

`babelens evaluate MODEL --benchmark NAME --root DIR` evaluates a dual encoder on a published retrieval benchmark by
the benchmark's own protocol, and prints the results beside the figures of papers. `babelens benchmarks` lists the
benchmarks, and `babelens benchmarks NAME` shows one of them as below. Nothing is fetched: DIR holds the files as they
were published, and what is missing is named.

```bash
babelens evaluate runs/mural --benchmark xtd --root data/xtd --languages de,ko --output runs/mural/evaluation/xtd.json
```

```python title="Needs the files of XTD"
from babelens import Embedder
from babelens.evaluation import load_benchmark

benchmark = load_benchmark("xtd", "data/xtd", ["de", "ko"])
report = benchmark.evaluate(Embedder.from_pretrained("runs/mural"))
print(report["results"]["xtd"]["ko"]["t2i_r10"], report["published"][0]["rows"]["MURAL-LARGE"])
```

The file of results has `results` by test set and language, `means` over languages and groups of them, and `published`,
the figures of papers with their source. The ranks of single queries are kept beside it, so that `babelens compare` can
tell differences from chance. Recalls are by the usual protocol: an image finds each of its captions on its own, and
ties count against the model. Beside the figures of MLA's paper, recall is counted once more, as that paper counts it.

## Protocols
"""


def benchmarks_page() -> str:
    """The page as Markdown."""
    parts = [
        _HEAD,
        *(f"- **{name}**: {sentence}" for name, sentence in PROTOCOLS.items()),
        "",
        "## All benchmarks",
        "",
    ]
    parts += ["| name | benchmark | languages | protocol |", "|---|---|---|---|"]
    found = [find_benchmark(name) for name in benchmark_names()]
    parts += [f"| [`{b.name}`](#{b.name}) | {b.title} | {' '.join(b.languages)} | {b.protocol} |" for b in found]
    for benchmark in found:
        parts += ["", *_section(benchmark)]
    return "\n".join(parts) + "\n"


def _section(benchmark: Benchmark) -> list[str]:
    lines = [f"## {benchmark.name}", "", f"**{benchmark.title}**", ""]
    lines += [f"Paper: {benchmark.paper}. Source: <{benchmark.url}>. License: {benchmark.license}.", ""]
    lines += ["| in the folder | what it holds | from |", "|---|---|---|"]
    lines += [f"| `{file.path}` | {file.holds} | {file.origin} |" for file in benchmark.files]
    lines += ["", *(f"- {fact}" for fact in benchmark.facts)]
    if benchmark.groups:
        lines += [f"- Mean over {group} languages: {' '.join(names)}." for group, names in benchmark.groups.items()]
    for figures in benchmark.figures:
        lines += ["", *_figures(figures, benchmark)]
    return lines


def _figures(figures: Figures, benchmark: Benchmark) -> list[str]:
    what = f"`{figures.metric}` by language" if figures.metric else "by metric"
    test_set = "" if figures.test_set == benchmark.name else f" on `{figures.test_set}`"
    lines = [f"{figures.source}{test_set}, {what}.{f' {figures.note}' if figures.note else ''}", ""]
    lines += [f"| | {' | '.join(figures.columns)} |", "|---|" + "--:|" * len(figures.columns)]
    for row, values in figures.rows.items():
        lines.append(f"| {row} | {' | '.join('' if value is None else f'{value:g}' for value in values)} |")
    return lines


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(benchmarks_page(), encoding="utf-8")

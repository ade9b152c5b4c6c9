"""`babelens benchmarks`: the published benchmarks that `babelens evaluate --benchmark` runs."""

from dataclasses import asdict
from typing import Annotated

import typer

from ..configuration.errors import BenchmarkError
from ..data.benchmarks.catalog import PROTOCOLS, Benchmark, benchmark_names, find_benchmark
from .console import plain_console, print_json, results_table
from .options import AsJson


def benchmarks(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A benchmark to show in full.", show_default="a list of all")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the published benchmarks that can be evaluated, or show one: its files, its license, its protocol.

    `babelens evaluate MODEL --benchmark NAME --root DIR` evaluates a model on one. The files are not fetched; with
    NAME, this command shows which are needed in DIR, and where they are from.
    """
    try:
        chosen = find_benchmark(name) if name else None
    except BenchmarkError as error:
        raise typer.BadParameter(str(error), param_hint="NAME") from error
    if as_json:
        shown = asdict(chosen) if chosen else [asdict(find_benchmark(each)) for each in benchmark_names()]
        print_json(shown)
    elif chosen:
        _show(chosen)
    else:
        _list()


def _list() -> None:
    table = results_table("name", "benchmark", "languages", names=3)
    for name in benchmark_names():
        benchmark = find_benchmark(name)
        table.add_row(name, benchmark.title, " ".join(benchmark.languages))
    plain_console().print(table)


def _show(benchmark: Benchmark) -> None:
    lines = [
        f"{benchmark.name}: {benchmark.title}",
        "",
        f"languages  {' '.join(benchmark.languages)}",
        f"protocol   {PROTOCOLS[benchmark.protocol]}",
        f"paper      {benchmark.paper}",
        f"source     {benchmark.url}",
        f"license    {benchmark.license}",
        "",
        "Files in the folder:",
    ]
    for file in benchmark.files:
        lines += [f"  {file.path}", f"      {file.holds}", f"      from {file.origin}"]
    lines += ["", "What is known:", *(f"  - {fact}" for fact in benchmark.facts)]
    if benchmark.groups:
        lines += ["", "Groups of languages, whose means are reported:"]
        lines += [f"  {group}: {' '.join(languages)}" for group, languages in benchmark.groups.items()]
    if benchmark.figures:
        lines += ["", "Figures of papers that are shown beside the results:"]
        lines += [f"  {figures.source}: {figures.metric or figures.test_set}" for figures in benchmark.figures]
    typer.echo("\n".join(lines))

"""`babelens evaluate benchmark`: evaluates on a published retrieval benchmark by its protocol, or lists them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..data.benchmarks import PROTOCOLS, Benchmark, benchmark_names, find_benchmark
from .common import (
    Languages,
    ResultsFile,
    TrustRemoteCode,
    begin_work,
    check_path,
    plain_console,
    results_table,
    tags_of,
)

if TYPE_CHECKING:
    from rich.table import Table

    from ..evaluation.ranking import QueryRanks


def benchmark(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="The model: a folder, or a name on the Hugging Face Hub.",
            show_default="lists the benchmarks",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--benchmark", metavar="NAME", help="The benchmark, such as `xtd`.")
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            help="The folder with the files of the benchmark, in their published layout.",
            callback=check_path,
            file_okay=False,
        ),
    ] = None,
    languages: Languages = None,
    output: ResultsFile = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Measure a model on a published benchmark, by its own protocol, next to the results of papers.

    Without --benchmark, the benchmarks are listed. With --benchmark and without MODEL, its files, license and protocol
    are shown. The original files are read; nothing is fetched. Recalls are in percent.
    """
    if name is None or model is None:
        if (name is None and model is not None) or root is not None:
            missing = "--benchmark" if name is None else "MODEL"
            raise typer.BadParameter(
                f"give {missing} too; without a model, the benchmarks are only described", param_hint=missing
            )
        _show(find_benchmark(name)) if name else _list()
        return
    if root is None:
        raise typer.BadParameter("name the folder with the benchmark's files", param_hint="--root")
    tags = tags_of(languages)
    find_benchmark(name).chosen(tags)
    begin_work()

    from ..evaluation.benchmarks import load_benchmark
    from ..inference.embedder import Embedder
    from .tables import save_results

    benchmark = load_benchmark(name, root, tags)
    embedder = Embedder.from_pretrained(model, trust_remote_code=trust_remote_code)
    ranks: dict[str, QueryRanks] = {}
    report = benchmark.evaluate(embedder, ranks=ranks)
    save_results(report, output, ranks=ranks)
    _print_report(report, model)


_RETRIEVAL = "mean_recall"  # only results of image-text retrieval have it


def _print_report(report: dict[str, Any], model: str) -> None:
    from .tables import print_recalls

    for test_set, by_language in report["results"].items():
        if all(_RETRIEVAL in numbers for numbers in by_language.values()):
            print_recalls(test_set, by_language)
        else:
            _print_numbers(test_set, by_language)
    if report["means"]:
        _print_numbers("means over languages", report["means"])
    for published in report["published"]:
        metric = f", {published['metric']}" if published["metric"] else ""
        table = results_table("", *published["columns"])
        table.add_row(model, *_cells(published["ours"]), style="bold", end_section=True)
        for row, values in published["rows"].items():
            table.add_row(row, *_cells(values))
        _print(f"{published['test_set']}{metric}, next to {published['source']}", table)
        if published["note"]:
            plain_console().print(f"Note: {published['note']}\n")


def _print_numbers(title: str, rows: dict[str, dict[str, float]]) -> None:
    """Prints rows of numbers with the same column names."""
    names = [name for name in next(iter(rows.values())) if not name.endswith("_equal_texts")]
    table = results_table("", *names)
    for row, numbers in rows.items():
        values = (numbers[name] for name in names)
        table.add_row(row, *(f"{value:,}" if isinstance(value, int) else f"{value:.1f}" for value in values))
    _print(title, table)


def _print(title: str, table: "Table") -> None:
    """Prints a table under its title, which may be wider than the table."""
    console = plain_console()
    console.print(f" {title}")
    console.print(table)


def _cells(values: list[float | None]) -> list[str]:
    return ["" if value is None else f"{value:.1f}" for value in values]


# ---- The list of published benchmarks ----


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
    lines += ["", "Facts:", *(f"  - {fact}" for fact in benchmark.facts)]
    if benchmark.figures:
        lines += ["", "Results of papers that are shown next to the measured ones:"]
        lines += [f"  {figures.source}: {figures.metric or figures.test_set}" for figures in benchmark.figures]
    typer.echo("\n".join(lines))

"""A published benchmark, for `babelens evaluate benchmark`."""

from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ...configuration.errors import BenchmarkError
from ...evaluation.benchmarks import load_benchmark
from ...evaluation.query_ranks import QueryRanks
from ..console import plain_console
from .models import load_retrieval_embedder
from .results import show_results
from .tables import print_recalls

_RETRIEVAL = "mean_recall"  # what only results of image-text retrieval have


def evaluate_benchmark(
    model: str,
    name: str,
    root: Path,
    languages: list[str] | None,
    *,
    batch_size: int,
    trust_remote_code: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Evaluates a model on a benchmark, and shows the results; arguments as the command's options.

    Raises:
        typer.BadParameter: for a folder that does not hold the benchmark, and a model that is no dual encoder.
    """
    try:
        benchmark = load_benchmark(name, root, languages)
    except BenchmarkError as error:
        raise typer.BadParameter(str(error), param_hint="--root") from error
    embedder = load_retrieval_embedder(model, batch_size=batch_size, trust_remote_code=trust_remote_code)
    ranks: dict[str, QueryRanks] = {}
    report = benchmark.evaluate(embedder, ranks=ranks)
    show_results(report, output, as_json, lambda: _print_report(report, model), ranks=ranks)


def _print_report(report: dict[str, Any], model: str) -> None:
    for test_set, by_language in report["results"].items():
        if all(_RETRIEVAL in numbers for numbers in by_language.values()):
            print_recalls(test_set, by_language)
        else:
            _print_numbers(test_set, by_language)
    if report["means"]:
        _print_numbers(
            "means over languages", {group: _main_recalls(means) for group, means in report["means"].items()}
        )
    for table in report["published"]:
        _print_published(table, model)


def _main_recalls(numbers: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if not name.endswith("_equal_texts")}


def _print_numbers(title: str, rows: dict[str, dict[str, float]]) -> None:
    """Prints rows of numbers with the same names."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("")
    for metric in next(iter(rows.values())):
        table.add_column(metric, justify="right")
    for name, numbers in rows.items():
        table.add_row(
            name, *(f"{value:,}" if isinstance(value, int) else f"{value:.1f}" for value in numbers.values())
        )
    _print(title, table)


def _print_published(published: dict[str, Any], model: str) -> None:
    """Prints what was measured beside the figures of a paper."""
    metric = f", {published['metric']}" if published["metric"] else ""
    title = f"{published['test_set']}{metric}, beside {published['source']}"
    table = Table(box=SIMPLE_HEAD)
    table.add_column("")
    for column in published["columns"]:
        table.add_column(column, justify="right")
    table.add_row(model, *_cells(published["ours"]), style="bold", end_section=True)
    for row, values in published["rows"].items():
        table.add_row(row, *_cells(values))
    _print(title, table)
    if published["note"]:
        plain_console().print(f"Note: {published['note']}\n")


def _print(title: str, table: Table) -> None:
    """Prints a table under its title, which may be wider than the table."""
    console = plain_console()
    console.print(f" {title}")
    console.print(table)


def _cells(values: list[float | None]) -> list[str]:
    return ["" if value is None else f"{value:.1f}" for value in values]

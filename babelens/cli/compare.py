"""`babelens compare`: the results of runs side by side."""

import logging
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..utils.errors import InputError
from .common import begin_work, check_path, plain_console, print_json, results_table, split_tags

if TYPE_CHECKING:
    from ..evaluation.comparison import Score
    from ..evaluation.results import Results

logger = logging.getLogger(__name__)


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUNS...",
            help="Folders of runs, folders with runs of several seeds (`seed-1`, `seed-2`, …), or files that "
            "`babelens evaluate --output` wrote. The others are compared with the first.",
            callback=check_path,
        ),
    ],
    metrics: Annotated[
        str | None,
        typer.Option(help="The metrics to show, separated by commas, such as `t2i_r10,mean_recall`; all by default."),
    ] = None,
    style: Annotated[
        Literal["table", "json"], typer.Option("--format", help="A table, or every number as JSON.")
    ] = "table",
) -> None:
    """Compare the results of runs, with their significance.

    The tables show mean and standard deviation over seeds, for each test set, language and metric.

    Stars mark significant differences from the first of RUNS, by the paired bootstrap: images are resampled with all
    of their texts, identically for both runs. It needs the ranks of the queries, which `train` and `evaluate --output`
    write next to their results, and runs that were evaluated on the same queries.
    """
    names = None if metrics is None else split_tags(metrics)
    if names == []:
        raise typer.BadParameter(f"{metrics!r} names no metric", param_hint="--metrics")
    begin_work()
    from ..evaluation.comparison import compare, without_ranks

    rows = _read_rows(runs)
    scores = compare(rows, names)
    if len(rows) > 1 and (missing := without_ranks(rows)):
        logger.warning("%s: there are no query ranks; significance is not computed", ", ".join(missing))
    if style == "json":
        print_json([_record(score) for score in scores])
    else:
        _print_tables(scores)


def _read_rows(paths: Sequence[Path]) -> "dict[str, list[Results]]":
    """Reads the results of each path by name: one for a model's folder or a file of results; for a folder of model
    folders, one for each, as the seeds of one row."""
    from ..evaluation.results import RESULTS, Results

    rows = {}
    for row, source in named_rows(paths).items():
        path = Path(source)
        file = path if path.is_file() else path / RESULTS
        rows[row] = [
            Results.of_file(each) for each in ([file] if file.is_file() else sorted(path.glob(f"*/{RESULTS}")))
        ]
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


def _record(score: "Score") -> dict[str, Any]:
    """Every number of a score."""
    found = score.difference
    return {
        "test_set": score.test_set,
        "language": score.language,
        "run": score.row,
        "metric": score.metric,
        "seeds": len(score.values),
        "mean": score.mean,
        "deviation": score.deviation,
        "difference": found and found.value,
        "difference_low": found and found.low,
        "difference_high": found and found.high,
        "p": found and found.p,
    }


def _print_tables(scores: "Sequence[Score]") -> None:
    from ..evaluation.comparison import RESAMPLES, SIGNIFICANT

    console = plain_console()
    for test_set, members in groupby(scores, lambda score: score.test_set):
        of_rows: dict[tuple[str, str], dict[str, str]] = {}
        for score in members:
            of_rows.setdefault((score.language, score.row), {})[score.metric] = str(score)
        metrics = list(dict.fromkeys(metric for cells in of_rows.values() for metric in cells))
        table = results_table("language", "run", *metrics, title=f"{test_set}, in %", names=2)
        shown = None
        for (language, row), cells in of_rows.items():
            table.add_row("" if language == shown else language, row, *(cells.get(name, "") for name in metrics))
            shown = language
        console.print(table)
    counts = sorted({len(score.values) for score in scores})
    if counts[-1] > 1:
        console.print(f"Mean ± standard deviation over {' or '.join(map(str, counts))} seeds.")
    if any(score.difference for score in scores):
        marks = ", ".join(f"{mark} p < {bound}" for bound, mark in sorted(SIGNIFICANT.items(), reverse=True))
        console.print(f"Difference from {scores[0].row}, by {RESAMPLES:,} paired bootstraps over images: {marks}.")

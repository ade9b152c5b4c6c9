"""Comparing runs, for `babelens compare`."""

import csv
import io
import json
import logging
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ...evaluation.comparison import RESAMPLES, SIGNIFICANT, RunResults, Score, compare, spread, without_ranks
from ...workflows.run_results import read_rows
from ..console import plain_console

logger = logging.getLogger(__name__)

# The mark of a difference that may be chance.
NOISE = "n.s."


def compare_runs(runs: Sequence[Path], metrics: list[str] | None, style: str) -> None:
    """Compares runs, and shows the result; arguments as those of `babelens compare`."""
    show_comparison(read_rows(runs), metrics, style)


def show_comparison(
    rows: Mapping[str, Sequence[RunResults]], metrics: list[str] | None, style: str, *, intervals: bool = False
) -> None:
    """Compares rows, and prints the scores.

    Args:
        rows: the results of each row's seeds.
        metrics: the metrics to compare; None for all.
        style: `table`, `md`, `csv` or `json`.
        intervals: whether tables show each difference with its interval, too; CSV and JSON always have them.
    """
    scores = compare(rows, metrics)
    if len(rows) > 1 and (missing := without_ranks(rows)):
        logger.warning(
            "%s: there are no ranks of queries, since an earlier version evaluated the run: significance is not "
            "computed. `babelens train … --resume` evaluates a finished run again",
            ", ".join(missing),
        )
    match style:
        case "json":
            typer.echo(json.dumps([_record(score) for score in scores], ensure_ascii=False, indent=2))
        case "csv":
            typer.echo(_csv(scores), nl=False)
        case "md":
            typer.echo(_markdown(scores, intervals))
        case _:
            _print_tables(scores, intervals)


def with_interval(score: Score) -> str:
    """A score, and below it its difference to the first row: `71.2` and `+1.3 [0.4, 2.2] **`."""
    values, difference = spread(score.values), score.difference
    if difference is None:
        return values
    interval = f"[{difference.low:.1f}, {difference.high:.1f}]"
    return f"{values}\n{difference.value:+.1f} {interval} {difference.stars or NOISE}"


def _record(score: Score) -> dict[str, Any]:
    """Every number of a score."""
    difference = score.difference
    record: dict[str, Any] = {
        "test_set": score.test_set,
        "language": score.language,
        "run": score.row,
        "metric": score.metric,
        "seeds": len(score.values),
        "mean": score.mean,
        "deviation": score.deviation,
    }
    names = ("value", "low", "high", "p")
    keys = ("difference", "difference_low", "difference_high", "p")
    return record | {key: difference and getattr(difference, name) for key, name in zip(keys, names, strict=True)}


def _csv(scores: Sequence[Score]) -> str:
    records = [_record(score) for score in scores]
    text = io.StringIO()
    writer = csv.DictWriter(text, records[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _markdown(scores: Sequence[Score], intervals: bool) -> str:
    parts = []
    for test_set, headings, lines in _tables(scores, intervals):
        parts += [f"**{test_set}**", "", _row(["language", "run", *headings])]
        parts.append(_row(["---", "---", *("--:" for _ in headings)]))
        parts += [*(_row([language, *cells]) for language, cells in lines), ""]
    return "\n".join([*parts, *_legend(scores, intervals)]).rstrip()


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", "; ") for cell in cells) + " |"


def _print_tables(scores: Sequence[Score], intervals: bool) -> None:
    console = plain_console()
    for test_set, headings, lines in _tables(scores, intervals):
        table = Table(box=SIMPLE_HEAD, title=f"{test_set}, in %", title_justify="left")
        for heading in ("language", "run"):
            table.add_column(heading)
        for heading in headings:
            table.add_column(heading, justify="right")
        for language, group in groupby(lines, lambda line: line[0]):
            for number, (_, cells) in enumerate(group):
                table.add_row("" if number else language, *cells)
        console.print(table)
    for line in _legend(scores, intervals):
        console.print(line)


def _tables(scores: Sequence[Score], intervals: bool) -> list[tuple[str, list[str], list[tuple[str, list[str]]]]]:
    """(test set, metrics, lines) of each table; a line is a language, and cells of the run and its metrics."""
    tables = []
    for test_set, group in groupby(scores, lambda score: score.test_set):
        members = list(group)
        metrics = list(dict.fromkeys(score.metric for score in members))
        lines = []
        for (language, row), line in groupby(members, lambda score: (score.language, score.row)):
            cells = {score.metric: with_interval(score) if intervals else str(score) for score in line}
            lines.append((language, [row, *(cells.get(metric, "") for metric in metrics)]))
        tables.append((test_set, metrics, lines))
    return tables


def _legend(scores: Sequence[Score], intervals: bool) -> list[str]:
    """What the marks mean, of those that a table may have."""
    legend = []
    counts = sorted({len(score.values) for score in scores})
    if counts[-1] > 1:
        legend.append(f"Mean ± standard deviation over {' or '.join(map(str, counts))} seeds.")
    if any(score.difference for score in scores):
        marks = ", ".join(f"{mark} p < {bound}" for bound, mark in sorted(SIGNIFICANT.items(), reverse=True))
        method = f"by {RESAMPLES:,} paired bootstraps over images"
        if intervals:
            legend.append(f"+: the difference to {scores[0].row} with its interval of 95 %, {method}: {marks}.")
            legend.append(f"{NOISE}: no more than chance explains, p ≥ {max(SIGNIFICANT)}.")
        else:
            legend.append(f"Difference to {scores[0].row}, {method}: {marks}.")
    return legend

"""`babelens compare`: the results of runs side by side, or of models on the same captioned images."""

import csv
import io
import logging
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .console import plain_console, print_json, results_table
from .options import (
    CAPTIONED_IMAGES,
    BatchSize,
    Languages,
    OnlyCaptioned,
    Protocol,
    SourceOptions,
    Split,
    TrustRemoteCode,
    split_tags,
    tags_of,
)
from .starting import begin_work

if TYPE_CHECKING:
    from ..evaluation.comparison import RunResults, Score

# What a table with intervals shows where --metrics is left out: all seven metrics would not fit into a terminal.
_SHOWN = ["t2i_r1", "i2t_r1", "mean_recall"]
_MODELS = "Models on captioned images"
_OF_RUNS = ("runs", "metrics", "style")


def compare(
    context: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUNS...",
            help="Folders of runs, folders with a run for each seed (`babelens train --seeds`), or files that "
            "`babelens evaluate --output` wrote. With --data: models, as folders or names on the Hugging Face Hub; "
            "any dual encoder of babelens or transformers, and adapters. The others are compared with the first.",
        ),
    ],
    metrics: Annotated[
        str | None,
        typer.Option(
            help="The metrics to show, separated by commas, such as `t2i_r10,mean_recall`. Without this option, all; "
            f"with --data, {', '.join(_SHOWN)}."
        ),
    ] = None,
    style: Annotated[
        Literal["table", "md", "csv", "json"],
        typer.Option("--format", help="A table for the terminal or for Markdown, or every number as CSV or JSON."),
    ] = "table",
    data: Annotated[
        str | None,
        typer.Option(
            help=f"Evaluate RUNS, which are models, on these images with captions: {CAPTIONED_IMAGES}.",
            rich_help_panel=_MODELS,
        ),
    ] = None,
    languages: Languages = None,
    split: Split = None,
    options: SourceOptions = None,
    protocol: Protocol = "standard",
    only_captioned: OnlyCaptioned = False,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Compare runs: mean ± standard deviation over seeds, for each test set, language and metric.

    Stars mark differences to the first of RUNS that are larger than chance, by the paired bootstrap: images are drawn
    anew with all of their texts, the same for both. It needs the ranks of the queries, which `train` and `evaluate
    --output` keep beside their results, and runs that were evaluated on the same queries.

    With --data, models are evaluated on the same captions one after the other, as by `babelens evaluate captions`,
    and each difference is shown with its interval of 95 %.
    """
    names = None if metrics is None else split_tags(metrics)
    if names == []:
        raise typer.BadParameter(f"{metrics!r} names no metric", param_hint="--metrics")
    if data is None:
        _check_no_models(context, runs)
        begin_work()
        from ..workflows.run_results import read_rows

        show_comparison(read_rows([Path(run) for run in runs]), names, style)
        return
    tags = tags_of(languages)
    begin_work()

    from ..data.corpus.corpus import languages_of
    from .inputs import evaluated, read_source

    if file := next((run for run in runs if Path(run).is_file()), None):
        raise typer.BadParameter(f"{file} is a file: with --data, RUNS are models", param_hint="RUNS")
    corpus = read_source(data, options, split=split)
    tags = list(languages_of(corpus)) if tags is None else tags
    protocols: dict[str, Any] = {"protocol": protocol, "only_captioned": only_captioned}
    loading: dict[str, Any] = {"batch_size": batch_size, "trust_remote_code": trust_remote_code}
    rows = evaluated(runs, corpus, tags, protocols, **loading)
    show_comparison(rows, names or _SHOWN, style, intervals=True)


def _check_no_models(context: typer.Context, runs: list[str]) -> None:
    """Checks the arguments of a comparison of runs.

    Raises:
        typer.BadParameter: for a run that is not there, and an option about models.
    """
    for name in context.params:
        given = context.get_parameter_source(name)
        if name not in _OF_RUNS and given is not None and given.name == "COMMANDLINE":
            raise typer.BadParameter(
                "it is about models that are evaluated: give --data",
                param_hint="--" + name.removesuffix("s" * (name == "options")).replace("_", "-"),
            )
    for run in runs:
        if not Path(run).exists():
            raise typer.BadParameter(
                f"Path {run!r} does not exist. To compare models on captioned images, give --data", param_hint="RUNS"
            )


# ---- Comparing runs, for `babelens compare` ----

logger = logging.getLogger(__name__)

# The mark of a difference that may be chance.
NOISE = "n.s."


def show_comparison(
    rows: "Mapping[str, Sequence[RunResults]]", metrics: list[str] | None, style: str, *, intervals: bool = False
) -> None:
    """Compares rows, and prints the scores.

    Args:
        rows: the results of each row's seeds.
        metrics: the metrics to compare; None for all.
        style: `table`, `md`, `csv` or `json`.
        intervals: whether tables show each difference with its interval, too; CSV and JSON always have them.
    """
    from ..evaluation.comparison import compare, without_ranks

    scores = compare(rows, metrics)
    if len(rows) > 1 and (missing := without_ranks(rows)):
        logger.warning(
            "%s: there are no ranks of queries, since an earlier version evaluated the run: significance is not "
            "computed. `babelens train … --resume` evaluates a finished run again",
            ", ".join(missing),
        )
    match style:
        case "json":
            print_json([_record(score) for score in scores])
        case "csv":
            typer.echo(_csv(scores), nl=False)
        case "md":
            typer.echo(_markdown(scores, intervals))
        case _:
            _print_tables(scores, intervals)


def with_interval(score: "Score") -> str:
    """A score, and below it its difference to the first row: `71.2` and `+1.3 [0.4, 2.2] **`."""
    from ..evaluation.comparison import spread

    values, difference = spread(score.values), score.difference
    if difference is None:
        return values
    interval = f"[{difference.low:.1f}, {difference.high:.1f}]"
    return f"{values}\n{difference.value:+.1f} {interval} {difference.stars or NOISE}"


def _record(score: "Score") -> dict[str, Any]:
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


def _csv(scores: "Sequence[Score]") -> str:
    records = [_record(score) for score in scores]
    text = io.StringIO()
    writer = csv.DictWriter(text, records[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _markdown(scores: "Sequence[Score]", intervals: bool) -> str:
    parts = []
    for test_set, headings, lines in _tables(scores, intervals):
        parts += [f"**{test_set}**", "", _row(["language", "run", *headings])]
        parts.append(_row(["---", "---", *("--:" for _ in headings)]))
        parts += [*(_row([language, *cells]) for language, cells in lines), ""]
    return "\n".join([*parts, *_legend(scores, intervals)]).rstrip()


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", "; ") for cell in cells) + " |"


def _print_tables(scores: "Sequence[Score]", intervals: bool) -> None:
    console = plain_console()
    for test_set, headings, lines in _tables(scores, intervals):
        table = results_table("language", "run", *headings, title=f"{test_set}, in %", names=2)
        for language, group in groupby(lines, lambda line: line[0]):
            for number, (_, cells) in enumerate(group):
                table.add_row("" if number else language, *cells)
        console.print(table)
    for line in _legend(scores, intervals):
        console.print(line)


def _tables(scores: "Sequence[Score]", intervals: bool) -> list[tuple[str, list[str], list[tuple[str, list[str]]]]]:
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


def _legend(scores: "Sequence[Score]", intervals: bool) -> list[str]:
    """What the marks mean, of those that a table may have."""
    from ..evaluation.comparison import RESAMPLES, SIGNIFICANT

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

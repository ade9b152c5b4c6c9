"""A smaller vocabulary for a model, for `babelens trim`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ...workflows.trimming import TrimmingReport, gather_texts, trim
from ..console import plain_console
from .sources import read_source


def trim_model(
    model: str, output: Path, sources: dict[str, Any], *, coverage: float, trust_remote_code: bool, as_json: bool
) -> None:
    """Trims a model to the texts of `sources`, which are arguments of `gather_texts`, and shows what changed; with
    `options`, those of the one source of captions or of translations."""
    options = sources.pop("options")
    for kind in ("captions", "translations"):
        if options and sources[kind]:
            sources[kind] = [read_source(sources[kind][0], options, translations=kind == "translations")]
    report = trim(model, gather_texts(**sources), output, coverage=coverage, trust_remote_code=trust_remote_code)
    if as_json:
        typer.echo(json.dumps({"model": str(output)} | asdict(report), ensure_ascii=False, indent=2))
    else:
        _show(report, output)


def _show(report: TrimmingReport, output: Path) -> None:
    console = plain_console()
    table = Table("", "before", "after", "", box=SIMPLE_HEAD, title=str(output), title_justify="left")
    for name, (before, after), form in (
        ("word pieces", report.pieces, ",d"),
        ("parameters", report.parameters, ",d"),
        ("megabytes", report.megabytes, ",.1f"),
    ):
        table.add_row(name, format(before, form), format(after, form), f"{after / before:.1%}")
    table.add_row("unknown pieces in the texts", *(f"{count:,}" for count in report.unknown))
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(table)
    console.print(
        f"{report.coverage:.4%} of the pieces in {report.texts:,} texts are kept; "
        f"{report.changed:,} texts are cut otherwise than before" + (", such as" if report.samples else ".")
    )
    for sample in report.samples:
        pieces = f"{' '.join(sample.before)} → {' '.join(sample.after)}"
        console.print(f"- {sample.text}: {pieces}", highlight=False)

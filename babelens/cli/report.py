"""`babelens report`: one page about a run."""

from pathlib import Path
from typing import Annotated

import typer

from .console import plain_console
from .starting import begin_work


def report(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="The folder of a run, a folder with a run for each seed (`babelens train --seeds`), or a file that "
            "`babelens evaluate --output` wrote.",
            exists=True,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            help="The file to write.", show_default="`report.html` in the folder, or beside the file", dir_okay=False
        ),
    ] = None,
) -> None:
    """Write one HTML page about a run: results in each language with intervals, what the model finds, its training,
    its cost, and its data with their licenses.

    The page holds everything that it shows, and loads nothing from the network. `train` writes it as well, and so does
    `evaluate` beside its `--output`; this command writes it for runs of earlier versions, and for several seeds.
    """
    begin_work()

    from ..reports.page import write_report

    plain_console().print(f"Report: {write_report(run, output)}", soft_wrap=True)

"""Learning a language, for `babelens acquire`."""

import json
import shlex
import sys
from contextlib import redirect_stdout

import typer
from rich.console import Console
from rich.table import Table

from ...trainers.output_lock import locked
from ...workflows.acquiring import Acquisition as Acquisition
from ..console import plain_console


def acquire_language(acquisition: Acquisition, *, assemble: bool, resume: bool, as_json: bool) -> None:
    """Trains and saves an adapter, and shows how well it does.

    Args:
        acquisition: what to learn, and from what.
        assemble: write the whole model as well.
        resume: continue a run that was interrupted.
        as_json: print the result as JSON, and everything else on the error stream.
    """
    console = plain_console(stderr=as_json)
    acquisition.load()
    if assemble:
        acquisition.check_assembly()  # before anything is trained
    _show_samples(acquisition, console)
    with locked(acquisition.output):
        with redirect_stdout(sys.stderr if as_json else sys.stdout):  # the trainer prints its log
            results = acquisition.run(resume=resume)
        folder = acquisition.assemble() if assemble else None
        acquisition.save(results, command=shlex.join(["babelens", *sys.argv[1:]]))
    if as_json:
        files = {"adapter": str(acquisition.output), "model": folder and str(folder)}
        typer.echo(json.dumps(files | {"held_out": results}))
        return
    if results:
        console.print(
            f"Of {results['pairs']} held-out texts, {results['r1']:.1f} % find their translation first, "
            f"{results['r10']:.1f} % among the first ten."
        )
    console.print(f"Adapter: {acquisition.output}" + (f"\nModel: {folder}" if folder else ""))


def _show_samples(acquisition: Acquisition, console: Console) -> None:
    """Some translations, by which a reader sees whether the columns are swapped."""
    table = Table(title=f"{len(acquisition.pairs):,} translations, such as", box=None)
    for tag in (acquisition.language, acquisition.model.config.native_language):
        table.add_column(tag)
    for pair in acquisition.samples():
        table.add_row(*pair)
    console.print(table)

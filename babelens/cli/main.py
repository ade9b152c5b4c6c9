"""The command line `babelens`.

It must answer `--help` at once, so that the modules of commands import neither torch nor transformers: each declares
the options of its command and checks them, and imports what the work needs inside of its functions.
"""

import io
import logging
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from .. import __version__
from .acquire import acquire
from .analyze import analyze
from .benchmarks import benchmarks
from .compare import compare
from .convert import convert
from .data import data
from .demo import demo
from .embed import embed
from .errors import one_sentence_errors
from .evaluate import evaluate
from .export import export
from .features import features
from .index import index
from .info import info
from .option_names import CommandGroup
from .push import push
from .report import report
from .search import search
from .serve import serve
from .starting import keep_freed_memory, start_measuring
from .train import train
from .trim import trim
from .vocabulary import vocabulary

app = typer.Typer(
    cls=CommandGroup,
    help="Teach vision-language models new languages, and search images in any of them.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"babelens {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """The options that stand before a command."""


_COMMANDS: dict[str, list[Callable[..., None]]] = {
    "Teach and train": [demo, acquire, train, vocabulary, trim],
    "Search and measure": [search, serve, embed, features, compare, report, benchmarks],
    "Inspect and publish": [data, info, export, push],
}
for panel, commands in _COMMANDS.items():
    for command in commands:
        # What `acquire` does not know may be an option of an earlier version.
        former = {"ignore_unknown_options": True, "allow_extra_args": True} if command is acquire else None
        app.command(rich_help_panel=panel, context_settings=former)(command)
app.add_typer(evaluate, name="evaluate", rich_help_panel="Search and measure")
app.add_typer(analyze, name="analyze", rich_help_panel="Search and measure")
app.add_typer(index, name="index", rich_help_panel="Search and measure")
app.add_typer(convert, name="convert", rich_help_panel="Inspect and publish")


def main() -> None:
    """Runs the command line, and ends the process with its exit status (`errors`).

    What the package logs, such as the precision that it trains in, goes to the standard error stream.
    """
    keep_freed_memory()
    start_measuring()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the name of a file need not be UTF-8
            stream.reconfigure(errors="backslashreplace")
    log = logging.getLogger("babelens")
    log.addHandler(logging.StreamHandler())
    log.setLevel(logging.INFO)
    log.propagate = False
    with one_sentence_errors():
        app()


if __name__ == "__main__":
    main()

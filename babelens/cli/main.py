"""The command line `babelens`: every command is a function of its own in `commands/`."""

import io
import logging
import signal
import sys
from typing import Annotated

import typer
from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
from rich.text import Text
from transformers.utils.logging import disable_progress_bar

from .. import __version__
from ..configuration.errors import BabelensError
from .acquire import acquire
from .console import plain_console
from .data import data
from .demo import demo
from .embed import embed
from .evaluate import evaluate
from .features import features
from .info import info
from .push import push
from .search import search
from .train import train
from .trim import trim

app = typer.Typer(
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
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """What stands before a command."""


for command in (demo, acquire, train, evaluate, embed, features, search, trim, info, data, push):
    app.command()(command)

# What a user can mend: shown as one sentence. Anything else is a mistake of ours and keeps its traceback.
_USER_ERRORS = (BabelensError, OSError)


def main() -> None:
    """Runs the command line; what goes wrong with the user's data or machine ends in one sentence and status 1.

    What the package logs, such as the precision that it trains in, goes to the standard error stream.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # until here, `quiet_start` had it
    _hide_loading_bars()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the name of a file need not be UTF-8
            stream.reconfigure(errors="backslashreplace")
    log = logging.getLogger("babelens")
    log.addHandler(logging.StreamHandler())
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        app()
    except _USER_ERRORS as error:
        plain_console(stderr=True).print(Text("Error:", "bold red"), _sentence(error), highlight=False)
        sys.exit(1)


def _hide_loading_bars() -> None:
    """transformers shows a bar for every model that it loads; what the Hub sends keeps its own."""
    hub_shows_bars = not are_progress_bars_disabled()
    disable_progress_bar()
    if hub_shows_bars:
        enable_progress_bars()


def _sentence(error: BaseException) -> str:
    """What an error says; of one that a process of a data loader sent, without that process's traceback."""
    message = str(error)
    if not message.startswith("Caught "):
        return message
    return message.rpartition(f"{type(error).__name__}: ")[2].strip()


if __name__ == "__main__":
    main()

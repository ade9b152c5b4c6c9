"""The command line `babelens`: every command is a function of its own in `commands/`."""

import logging
import sys

import typer
from rich.console import Console
from rich.markup import escape

from .commands.acquire import acquire
from .commands.data import data
from .commands.demo import demo
from .commands.embed import embed
from .commands.evaluate import evaluate
from .commands.features import features
from .commands.info import info
from .commands.push import push
from .commands.search import search
from .commands.train import train
from .commands.trim import trim
from .configuration.errors import BabelensError

app = typer.Typer(
    help="Teach vision-language models new languages, and search pictures in any of them.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for command in (demo, acquire, train, evaluate, embed, features, search, trim, info, data, push):
    app.command()(command)

# What a user can mend: shown as one sentence. Anything else is a mistake of ours and keeps its traceback.
_USER_ERRORS = (BabelensError, OSError)


def main() -> None:
    """Runs the command line; what goes wrong with the user's data or machine ends in one sentence and status 1.

    What the package logs, such as the precision that it trains in, goes to the standard error stream.
    """
    log = logging.getLogger(__package__)
    log.addHandler(logging.StreamHandler())
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        app()
    except _USER_ERRORS as error:
        Console(stderr=True).print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False)
        sys.exit(1)


if __name__ == "__main__":
    main()

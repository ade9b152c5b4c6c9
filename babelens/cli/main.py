"""The command line `babelens`.

It must answer `--help` at once, so that the modules of commands import neither torch nor transformers: each declares
the options of its command and checks them, and imports what the work needs inside of its functions.
"""

import io
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .. import __version__
from ..utils.errors import BabelensError, InputError
from ..utils.redaction import redact
from .acquire import acquire
from .analyze import analyze
from .compare import compare
from .convert import convert
from .data import data
from .demo import demo
from .embed import embed
from .errors import DEBUG, one_sentence_errors
from .evaluate import evaluate
from .export import export
from .features import features
from .index import index
from .info import info
from .push import push
from .search import search
from .serve import serve
from .train import train
from .trim import trim

# ---- Errors name options ----
# Errors of the package name arguments of Python, such as `split='train'`; those of a command name its options.


_QUOTES = "'\""
_ARGUMENT = re.compile(r"(?<![\w.-])(?P<name>[a-z_]+)=(?P<value>True\b|'[^']*'|\"[^\"]*\"|\d+\b)")


class CommandGroup(TyperGroup):
    """The command line: in errors, `split='train'` becomes `--split train` where the command has such an option."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command that was given."""
        try:
            return super().invoke(ctx)
        except BabelensError as error:
            if len(error.args) == 1 and isinstance(error.args[0], str):
                error.args = (self._with_options(ctx, error.args[0]),)
            raise
        except typer.BadParameter as error:
            error.message = redact(self._with_options(ctx, error.message))
            if _is_of_input(error):
                raise InputError(error.message) from error
            raise

    def _with_options(self, ctx: Any, sentence: str) -> str:
        command = self.commands.get(ctx.invoked_subcommand or "")
        return with_options(sentence, dict(_options_of(command))) if command else sentence


def _is_of_input(error: typer.BadParameter) -> bool:
    """Whether the data, a model or a file is wrong, and not the way in which the command was written."""
    return error.message.endswith("does not exist.") or isinstance(error.__cause__, BabelensError | OSError)


def with_options(sentence: str, options: dict[str, str]) -> str:
    """Writes arguments with a value as options.

    Args:
        sentence: the message of an error.
        options: the options by the names of their arguments, such as `--trust-remote-code` by `trust_remote_code`.
    """

    def option(match: re.Match[str]) -> str:
        name, value = match["name"], match["value"]
        if name not in options:
            return match[0]
        return options[name] if value == "True" else f"{options[name]} {shlex.quote(value.strip(_QUOTES))}"

    return _ARGUMENT.sub(option, sentence)


def _options_of(command: Any) -> Iterator[tuple[str, str]]:
    """The options of a command, or of all commands of a group, by the names of their arguments."""
    for each in getattr(command, "commands", {"": command}).values():
        for parameter in each.params:
            for name in parameter.opts if parameter.param_type_name == "option" else []:
                if name.startswith("--"):
                    yield name.removeprefix("--").replace("-", "_"), name


# ---- The commands ----

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


def _debug(is_asked: bool) -> None:
    if is_asked:
        os.environ[DEBUG] = "1"


@app.callback()
def _options(
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help="Show where an error comes from (BABELENS_DEBUG=1).", callback=_debug, is_eager=True
        ),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """The options that stand before a command."""


_COMMANDS: dict[str, list[Callable[..., None]]] = {
    "Teach and train": [demo, acquire, train, trim],
    "Search and measure": [search, serve, embed, index, features, compare],
    "Inspect and publish": [data, info, export, push],
}
for panel, commands in _COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(evaluate, name="evaluate", rich_help_panel="Search and measure")
app.add_typer(analyze, name="analyze", rich_help_panel="Search and measure")
app.add_typer(convert, name="convert", rich_help_panel="Inspect and publish")


class _Redacting(logging.Formatter):
    """Writes records without tokens and passwords."""

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        return str(redact(super().format(record)))


def main() -> None:
    """Runs the command line, and ends the process with its exit status (`errors`).

    What the package logs, such as the precision that it trains in, goes to the standard error stream.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the name of a file need not be UTF-8
            stream.reconfigure(errors="backslashreplace")
    log = logging.getLogger("babelens")
    handler = logging.StreamHandler()
    handler.setFormatter(_Redacting())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    with one_sentence_errors():
        app()


if __name__ == "__main__":
    main()

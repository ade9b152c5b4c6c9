"""The command line `babelens`.

Each command declares and checks its options, and imports heavy packages inside functions. An error is printed once, as
one sentence; `--debug` shows its traceback. The exit status is

    1    for an error in the data, the settings, the files or the machine, and for a missing package
    2    for a wrong command
    130  after Ctrl-C
    141  if the reader of the output has closed it, as in `babelens … | head`
"""

import gc
import io
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException

from .. import __version__
from ..utils.errors import BabelensError
from ..utils.redaction import redact
from .acquire import acquire
from .analyze import analyze
from .common import plain_console
from .compare import compare
from .convert import convert
from .demo import demo
from .embed import embed
from .evaluate import evaluate
from .export import export
from .features import features
from .info import info
from .push import push
from .search import index, search
from .serve import serve
from .train import train
from .trim import trim

app = typer.Typer(
    help="Teach vision-language models new languages, and search images in any of them.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
DEBUG = "BABELENS_DEBUG"


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
        bool, typer.Option("--debug", help="Show the traceback of an error.", callback=_debug, is_eager=True)
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """The options before a command."""


class _Command(TyperCommand):
    """Refuses an option that is given twice: typer would silently ignore its first value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the words of a command line."""
        order = self.make_parser(ctx).parse_args(args=list(args))[2]
        for option in order:
            if order.count(option) > 1 and not getattr(option, "multiple", True):
                several = "; give several as uk,pl" if option.name in ("language", "languages") else ""
                ctx.fail(f"{option.opts[0]} is given twice{several}")
        return super().parse_args(ctx, args)


_COMMANDS: dict[str, list[Callable[..., None]]] = {
    "Teach and train": [demo, acquire, train, trim],
    "Search and measure": [search, serve, embed, index, features, compare],
    "Inspect and publish": [info, convert, export, push],
}
for panel, commands in _COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
for group, name in ((evaluate, "evaluate"), (analyze, "analyze")):
    app.add_typer(group, name=name, rich_help_panel="Search and measure")
for registered in (*app.registered_commands, *evaluate.registered_commands, *analyze.registered_commands):
    registered.cls = _Command


class _Redacting(logging.Formatter):
    """Writes records without tokens and passwords."""

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        return str(redact(super().format(record)))


@contextmanager
def _logging() -> Iterator[None]:
    """Writes the messages of babelens to the standard error while a command runs."""
    log, handler = logging.getLogger("babelens"), logging.StreamHandler()
    before = log.level, log.propagate
    handler.setFormatter(_Redacting())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]


def main() -> None:
    """Runs the command line, and ends the process with its exit status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during the imports ends the process; see begin_work
    gc.disable()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # file names may not be valid UTF-8
            stream.reconfigure(errors="backslashreplace")
    try:
        with _logging():
            status = app(standalone_mode=False)
        sys.stdout.flush()  # a closed pipe is noticed here rather than when the interpreter ends
    except KeyboardInterrupt:
        status = 130
    except Exception as error:
        status = _status_of(error)
    if status == 130:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C does not wait for threads
    sys.exit(status or 0)


def _status_of(error: Exception) -> int:
    """Prints an error as one sentence, and returns the exit status; bugs of babelens are raised again."""
    if isinstance(error, BrokenPipeError):
        poll = select.poll()
        poll.register(1, 0)  # errors are always reported
        if poll.poll(0):  # the reader has closed the output
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discards buffered output
            return 141
    if os.environ.get(DEBUG):
        raise error
    status, message = 1, str(error)
    if isinstance(error, TyperException):
        status, message = 2, error.format_message()
    elif isinstance(error, ImportError):
        message = _missing_package(error)
    elif not isinstance(error, BabelensError | OSError):
        raise error
    elif message.startswith("Caught "):  # from a data loader process, which adds its traceback
        message = message.rpartition(f"{type(error).__name__}: ")[2].strip()
    if message:
        from rich.text import Text

        plain_console(stderr=True).print(Text("Error:", "bold red"), redact(message), highlight=False)
    return status


def _missing_package(error: ImportError) -> str:
    """The sentence for a package that is not installed; raises the error again if it is a bug of babelens."""
    package = (error.name or "").partition(".")[0]
    if not error.name and not isinstance(error, ModuleNotFoundError):
        return str(error)  # the library's message says what to install
    if not isinstance(error, ModuleNotFoundError) or package in ("", "babelens"):
        raise error
    return f"the package {package} is not installed: pip install {package}"


if __name__ == "__main__":
    main()

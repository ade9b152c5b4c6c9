"""Ctrl-C while the command line is still being imported ends it quietly, as it does afterwards.

The imports take seconds, and come before any function of the command line could catch an interrupt. A program that
imports babelens as a library keeps its own handling.
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


if is_command_line():
    signal.signal(signal.SIGINT, _quit)

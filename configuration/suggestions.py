"""Suggestions in error messages: the known name that is nearest to a misspelt one."""

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches


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


def nearest_first(given: object, known: Iterable[str]) -> list[str]:
    """Returns the known names, those first that are most like an unknown one: similar, or longer names with it in
    them (`epochs`), or names that it abbreviates (`lr`)."""
    wanted = str(given).lower()

    def unlikeness(name: str) -> float:
        initials = "".join(part[:1] for part in name.lower().split("_"))
        is_part = bool(wanted) and (wanted in name.lower() or wanted == initials)
        return -SequenceMatcher(None, wanted, name.lower()).ratio() - is_part

    return sorted(known, key=unlikeness)


def wrong_encoding(error: UnicodeDecodeError) -> str:
    """Returns what is wrong with a text file that is not UTF-8, and what to do."""
    kind = ", but UTF-16" if error.object[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in error.object else ""
    byte = f"byte 0x{error.object[error.start]:02x}"
    return f"not UTF-8{kind} ({byte} at position {error.start}): save the file as UTF-8"


def suggestion(name: str) -> str:
    """Returns the end of an error message that suggests `name`."""
    return f"; did you mean {name!r}?"

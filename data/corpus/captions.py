"""Converts captions in any accepted form into a list of {language, text}, and counts the rows that are left out."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...utils.errors import CorpusError, LanguageTagError
from ...utils.languages import counts_as, normalize_language
from .corpus import Caption

Place = Callable[[int], str]  # index of a row -> its name in error messages

MAX_CHARACTERS = 10_000  # of a text; longer ones are refused
_NAMED_ROWS = 10  # number of rows that the log names for each reason

logger = logging.getLogger(__name__)


class IncompleteRowError(CorpusError):
    """A row without a caption, or a translation with only one text."""


@dataclass
class RowCount:
    """Counts the rows of a source that are read, or left out for a reason. A refused row raises an error."""

    source: str
    read: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    _named: dict[str, list[str]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.read + self.left_out.total()

    def leave_out(self, reason: str, row: str | None = None) -> None:
        """Counts a row as left out. `row` is its name in the log; None if the caller asked to leave it out."""
        self.left_out[reason] += 1
        if row is not None and len(named := self._named.setdefault(reason, [])) < _NAMED_ROWS:
            named.append(row.removeprefix(f"{self.source} "))

    def report(self) -> None:
        """Logs the counts in one line, as a warning if rows were left out without the caller asking for it."""
        if not +self.left_out:
            return
        reasons = []
        for reason, count in (+self.left_out).most_common():
            named = self._named.get(reason, [])
            more = f", and {count - len(named):,} more" if count > len(named) else ""
            reasons.append(f"{count:,} {reason}" + (f" ({', '.join(named)}{more})" if named else ""))
        counts = f"read {self.read:,} of {self.total:,} rows; left out {'; '.join(reasons)}"
        logger.log(logging.WARNING if self._named else logging.INFO, "%s: %s", self.source, counts)


def enumeration(names: list[str], shown: int = 10) -> str:
    return "; ".join(names[:shown]) + (f"; and {len(names) - shown} more" if len(names) > shown else "")


@dataclass(frozen=True)
class CaptionRules:
    """Decides which captions a corpus accepts and keeps. A caption in `en-US` counts as `en` among the languages to
    keep, unless the row has one in `en`."""

    language: str | None = None  # of plain-text captions
    languages: tuple[str, ...] | None = None  # canonical tags; rows without a caption in any of them are left out
    at_least: int = 1  # number of texts in a row: one for an image, two for a translation
    skip_incomplete: bool = False  # leave out rows with fewer texts with a warning, instead of refusing them


def normalize_captions(value: Any, rules: CaptionRules) -> list[Caption]:
    """Returns the captions of one row; an empty list if too few are in `rules.languages`. The value is a list of
    {language, text}; {language: text, texts or None}; or, if `rules.language` is given, one text or several."""
    captions = [{"language": language, "text": _checked(text)} for language, text in _tagged(value, rules)]
    if len(captions) < rules.at_least:
        absent = [language for language, text in value.items() if not text] if isinstance(value, dict) else []
        empty = f" (nothing in {', '.join(absent)})" if absent else ""
        raise IncompleteRowError(f"{len(captions)} texts{empty}, but a row needs at least {rules.at_least}")
    if rules.languages is not None:
        given = {caption["language"] for caption in captions}
        under = [(caption, counts_as(caption["language"], rules.languages)) for caption in captions]
        captions = [
            caption | {"language": tag}
            for caption, tag in under
            if tag is not None and (tag == caption["language"] or tag not in given)
        ]
    return captions if len(captions) >= rules.at_least else []


def normalize_row(value: Any, rules: CaptionRules, place: str, count: RowCount | None = None) -> list[Caption]:
    """Applies `normalize_captions` to a row, and counts it. Returns an empty list for a row to leave out."""
    count = count or RowCount("captions")
    try:
        captions = normalize_captions(value, rules)
    except (CorpusError, LanguageTagError) as error:
        if not (rules.skip_incomplete and isinstance(error, IncompleteRowError)):
            raise type(error)(f"{place}: {error}") from None
        count.leave_out("with too few texts", place)
        return []
    if captions:
        count.read += 1
    else:
        needed = "a text" if rules.at_least == 1 else f"{rules.at_least} texts"
        count.leave_out(f"without {needed} in {', '.join(rules.languages or ())}")
    return captions


def _tagged(value: Any, rules: CaptionRules) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        # Arrow gives every row the keys of all rows.
        tags = [(normalize_language(tag), texts) for tag, texts in value.items() if texts is not None]
        if repeated := [language for language, count in Counter(tag for tag, _ in tags).items() if count > 1]:
            raise CorpusError(f"language {repeated[0]!r} is given twice, in {', '.join(map(repr, value))}")
        yield from ((language, text) for language, texts in tags for text in listed(texts))
        return
    for caption in listed(value):
        is_tagged = isinstance(caption, dict) and caption.keys() == {"language", "text"}
        tag, text = (caption["language"], caption["text"]) if is_tagged else (None, caption)
        if tag is None and rules.language is None:
            name = "language='en', language_column='lang', or for a trainer, languages=['en']"
            raise CorpusError(f"{_shortened(text)} has no language; name it, as in {name}")
        yield rules.language or "" if tag is None else normalize_language(tag), text


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _checked(text: Any) -> str:
    if not isinstance(text, str):
        raise CorpusError(f"{_shortened(text)} is not a text")
    if not text or text.isspace():
        raise CorpusError("a text is empty")
    if len(text) > MAX_CHARACTERS:
        raise CorpusError(f"a text of {len(text)} characters ({_shortened(text)}), where {MAX_CHARACTERS} are allowed")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CorpusError(f"{_shortened(text)} has half of a surrogate pair, which is not a character") from None
    return text


def _shortened(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:59] + "…"

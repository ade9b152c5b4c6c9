"""Captions, which are texts with their languages: brings them from any accepted form into a list of {language,
text}."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ...utils.errors import BadTextError, CorpusError, LanguageTagError
from ...utils.languages import counts_as, normalize_language
from .row_count import RowCount

Caption = dict[str, str]  # {"language": …, "text": …}
Place = Callable[[int], str]  # index of a row -> its name in error messages


class IncompleteRowError(BadTextError):
    """A row without a caption, or a translation with a single text."""


@dataclass(frozen=True)
class CaptionRules:
    """Which captions a corpus accepts, and which of them it keeps.

    Args:
        language: the language of captions that are plain text.
        languages: canonical tags of the languages to keep; rows without a caption in any of them are left out. A
            caption in `en-US` counts as one in `en`, unless the row has one in `en`.
        max_characters: maximum length of a caption; a longer text is refused.
        at_least: minimum number of texts in a row: one for an image, two for a translation.
        skip_incomplete: whether to leave rows with fewer texts out, with a warning that names them, instead of
            refusing them.
    """

    language: str | None = None
    languages: tuple[str, ...] | None = None
    max_characters: int = 10_000
    at_least: int = 1
    skip_incomplete: bool = False


def normalize_captions(value: Any, rules: CaptionRules) -> list[Caption]:
    """The captions of one row; an empty list if too few of them are in `rules.languages`.

    Args:
        value: a list of {language, text}; {language: text, texts or None}; or, if `rules.language` is given, a text or
            texts.
        rules: the rules for captions.

    Raises:
        LanguageTagError: for an unknown language.
        BadTextError: for an empty or over-long text, one with half of a surrogate pair, or too few of them.
        CorpusError: for a language given twice, and for plain text in no known language.
    """
    captions = [{"language": language, "text": _checked(text, rules)} for language, text in _spelled(value, rules)]
    if len(captions) < rules.at_least:
        absent = [language for language, text in value.items() if not text] if isinstance(value, dict) else []
        empty = f" (nothing in {', '.join(absent)})" if absent else ""
        raise IncompleteRowError(f"{len(captions)} texts{empty}, but a row needs at least {rules.at_least}")
    kept = captions if rules.languages is None else list(_asked_for(captions, rules.languages))
    return kept if len(kept) >= rules.at_least else []


def _asked_for(captions: list[Caption], languages: tuple[str, ...]) -> Iterator[Caption]:
    """The captions in some languages, under the tags that were asked for."""
    given = {caption["language"] for caption in captions}
    for caption in captions:
        tag = counts_as(caption["language"], languages)
        if tag is not None and (tag == caption["language"] or tag not in given):
            yield caption | {"language": tag}


def normalize_rows(
    values: Iterable[Any], rules: CaptionRules, place: Place, count: RowCount | None = None
) -> Iterator[list[Caption]]:
    """`normalize_captions` of every row, with errors that name the row. Rows to leave out have an empty list.

    Args:
        values, rules, place: as there.
        count: counts the rows; without one, rows that are left out are logged at the end.
    """
    counted = count or RowCount("captions")
    for row, value in enumerate(values):
        try:
            captions = normalize_captions(value, rules)
        except (CorpusError, LanguageTagError) as error:
            if not (rules.skip_incomplete and isinstance(error, IncompleteRowError)):
                raise type(error)(f"{place(row)}: {error}") from None
            counted.leave_out("with too few texts", place(row))
            yield []
            continue
        if captions:
            counted.read += 1
        else:
            counted.leave_out(f"without {_texts(rules.at_least)} in {', '.join(rules.languages or ())}")
        yield captions
    if count is None:
        counted.report()


def _texts(count: int) -> str:
    return "a text" if count == 1 else f"{count} texts"


def enumeration(names: list[str], shown: int = 10) -> str:
    """The first names, and how many more there are."""
    return "; ".join(names[:shown]) + (f"; and {len(names) - shown} more" if len(names) > shown else "")


def _spelled(value: Any, rules: CaptionRules) -> Iterator[tuple[str, Any]]:
    """(canonical language, text) for every caption in a cell of any accepted form."""
    if isinstance(value, dict):
        spellings: dict[str, str] = {}
        for tag, texts in value.items():
            if texts is None:  # Arrow gives every row the keys of all rows
                continue
            language = normalize_language(tag)
            if language in spellings:
                raise CorpusError(f"language {language!r} is given twice, as {spellings[language]!r} and {tag!r}")
            spellings[language] = tag
            yield from ((language, text) for text in _listed(texts))
        return
    for caption in _listed(value):
        if isinstance(caption, dict) and caption.keys() == {"language", "text"}:
            language = caption["language"]
            if language is None and rules.language is None:
                raise CorpusError(
                    f"{shortened(caption['text'])} comes without a language; name it, as in language='en'"
                )
            yield rules.language or "" if language is None else normalize_language(language), caption["text"]
        elif rules.language is None:
            raise CorpusError(f"{shortened(caption)} comes without a language; name it, as in language='en'")
        else:
            yield rules.language, caption


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _checked(text: Any, rules: CaptionRules) -> str:
    if not isinstance(text, str):
        raise BadTextError(f"{shortened(text)} is no text")
    if not text or text.isspace():
        raise BadTextError("a text is empty")
    if len(text) > rules.max_characters:
        raise BadTextError(
            f"a text of {len(text)} characters ({shortened(text)}), where {rules.max_characters} are allowed"
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            half = text[error.start]
            raise BadTextError(f"{shortened(text)} has {half!r}, half of a surrogate pair, and no character") from None
    return text


def shortened(value: Any) -> str:
    """A value as errors show it."""
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:59] + "…"

"""Language tags: BCP 47 (RFC 5646), the one spelling in which babelens names a language.

Tags are normalised (`DE` -> `de`, `zh_cn` -> `zh-CN`, `sr-latn` -> `sr-Latn`, the deprecated `iw` -> `he`) or refused
by name; nothing is guessed. Registered subtags are looked up with `langcodes`, which comes with the package. Published
model folders carry this file for people who have not installed the package; without `langcodes` they get the check of
form and case alone.
"""

import re
from functools import cache

from .errors import BabelensError

# language [-extlang] [-Script] [-REGION] [-variant]*: the part of RFC 5646 that captions use.
_TAG = re.compile(
    r"(?P<language>[a-z]{2,3})(?P<extlang>-[a-z]{3})?(?P<script>-[a-z]{4})?(?P<region>-(?:[a-z]{2}|[0-9]{3}))?"
    r"(?P<variants>(?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*)",
    re.IGNORECASE,
)


class LanguageTagError(BabelensError, ValueError):
    """A string that names no language: malformed, or not in the IANA registry of language subtags."""


class UnknownLanguageError(BabelensError, ValueError):
    """A language that a model has not learned."""


class MissingLanguageError(BabelensError, ValueError):
    """A text that came without its language."""


class KnownLanguageError(BabelensError, ValueError):
    """A language that a model is to learn and knows already."""


def normalize_language(tag: str) -> str:
    """The canonical BCP-47 spelling of `tag`.

    Raises:
        LanguageTagError: when `tag` is not a string, is malformed, or names no registered language.
    """
    if not isinstance(tag, str):
        raise _malformed(tag)
    return _normalized(tag)


@cache
def _normalized(tag: str) -> str:
    spelled = tag.replace("_", "-")
    match = _TAG.fullmatch(spelled)
    if match is None:
        raise _malformed(tag)
    try:
        import langcodes
    except ImportError:
        script, region = match["script"] or "", match["region"] or ""
        language = match["language"] + (match["extlang"] or "")
        return language.lower() + script.title() + region.upper() + match["variants"].lower()
    if not langcodes.tag_is_valid(spelled):
        raise LanguageTagError(
            f"{tag!r} names no registered language (BCP 47: 'ja' is Japanese, 'uk' Ukrainian, 'zh' Chinese)"
        )
    return langcodes.standardize_tag(spelled)


def _malformed(tag: object) -> LanguageTagError:
    return LanguageTagError(f"{tag!r} is not a language tag; use BCP 47, such as 'de', 'zh-Hant' or 'pt-BR'")


def normalize_languages(tags: str | list[str] | tuple[str, ...]) -> list[str]:
    """Canonical tags in their order, each once. A single tag counts as a list of one."""
    return list(dict.fromkeys(normalize_language(tag) for tag in ([tags] if isinstance(tags, str) else tags)))


def language_for_each(language: str | list[str] | tuple[str, ...], count: int) -> list[str]:
    """One canonical tag for each of `count` texts, from one tag for all or one for each.

    Raises:
        LanguageTagError: for an unknown tag.
        ValueError: when a list is not `count` long.
    """
    if isinstance(language, str):
        return [normalize_language(language)] * count
    if len(language) != count:
        raise ValueError(
            f"{count} texts came with {len(language)} language tags: give one for all, or one for each text"
        )
    return [normalize_language(tag) for tag in language]


def language_id(language: str, known: list[str]) -> int:
    """The number of a language among those that a model knows, the native one first.

    Raises:
        LanguageTagError: for an unknown tag.
        UnknownLanguageError: for a language that is not among them.
    """
    language = normalize_language(language)
    if language not in known:
        raise UnknownLanguageError(f"this model has not learned {language!r}; it knows {', '.join(known)}")
    return known.index(language)

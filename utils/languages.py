"""Language tags: BCP 47 (RFC 5646), the one spelling in which babelens names a language.

Tags are normalized (`DE` -> `de`, `zh_cn` -> `zh-CN`, `sr-latn` -> `sr-Latn`, the deprecated `iw` -> `he`) or refused
with an error; a language is never guessed. A model that learned `mi-Latn`, `ar` or `pt` also answers to `mi`,
`arb-Arab` and `pt-BR` (`learned_language`). `langcodes` knows the registered subtags and the distances of languages.
Saved folders compare tags by their form (`in_folders`).
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence, Sized
from functools import cache, lru_cache
from typing import Any

from .errors import InputError, LanguageTagError, UnknownLanguageError, suggestion

# language [-extlang] [-Script] [-REGION] [-variant]*: the part of RFC 5646 that captions use.
_TAG = re.compile(
    r"[a-z]{2,3}(-[a-z]{3})?(-[a-z]{4})?(-([a-z]{2}|[0-9]{3}))?(-([a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*", re.IGNORECASE
)
# CLDR's distance of 'pt-BR' to 'pt-PT' is 5, of 'nb' to 'no' 1, of 'arz' to 'ar' 10, of 'da' to 'no' 12, and of 'uk'
# to 'ru', a useless suggestion, 24.
_NEAR, _SUGGESTED = 10, 14
SAME = 5  # of a language by another name or in another country

logger = logging.getLogger(__name__)


def normalize_language(tag: str) -> str:
    """Returns the canonical BCP-47 spelling of the tag of a registered language.

    Examples:
        >>> normalize_language("zh_cn")
        'zh-CN'
    """
    if not isinstance(tag, str):
        raise _malformed(tag)
    return _normalized(tag)


@cache
def _normalized(tag: str) -> str:
    import langcodes  # commands answer --help without it

    spelled = tag.replace("_", "-")
    if _TAG.fullmatch(spelled) is None:
        raise _malformed(tag)
    if not langcodes.tag_is_valid(spelled):
        raise LanguageTagError(
            f"{tag!r} names no registered language (BCP 47: 'ja' is Japanese, 'uk' Ukrainian, 'zh' Chinese)"
            f"{_spoken_in(spelled)}"
        )
    return langcodes.standardize_tag(spelled)


def _malformed(tag: object) -> LanguageTagError:
    named = _code_of_name(tag) if isinstance(tag, str) else ""
    hint = suggestion(named) if named else "; use BCP 47, such as 'de', 'zh-Hant' or 'pt-BR'"
    return LanguageTagError(f"{tag!r} is not a language tag{hint}")


def _code_of_name(name: str) -> str:
    """Returns the tag of a language that is given by its English name, such as `pl` for `Polish`, or ""."""
    from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

    code = TO_LANGUAGE_CODE.get(name.strip().lower(), "")
    return {"jw": "jv"}.get(code, code)  # as Whisper calls Javanese


def _spoken_in(code: str) -> str:
    """Returns what to add to an error if the tag is the code of a country: the language of most people there."""
    import langcodes

    country = f"und-{code.upper()}"
    if not langcodes.tag_is_valid(country):
        return ""
    return f"; {code.upper()} is a country: did you mean {langcodes.Language.get(country).maximize().language!r}?"


def normalize_languages(tags: str | list[str] | tuple[str, ...]) -> list[str]:
    """Returns canonical tags in the given order, each once. A single tag counts as a list of one."""
    return list(dict.fromkeys(normalize_language(tag) for tag in ([tags] if isinstance(tags, str) else tags)))


def language_for_each(language: Any, count: int) -> list[str]:
    """Returns one canonical tag for each of `count` texts, from one tag for all texts or one tag for each."""
    if isinstance(language, str):
        return [normalize_language(language)] * count
    if isinstance(language, bytes | Mapping) or not isinstance(language, Sized) or not isinstance(language, Iterable):
        raise _malformed(language)
    if len(language) != count:
        raise InputError(
            f"{count} texts came with {len(language)} language tags: give one for all, or one for each text"
        )
    return [normalize_language(tag) for tag in language]


def language_and_script(tag: str) -> tuple[str, str]:
    """Returns the language and the script of a tag: the macrolanguage, which tags without a region mean (`arb` is
    `ar`), and the likely script (`zh-TW` is written in `Hant`)."""
    import langcodes

    standard = langcodes.Language.get(langcodes.standardize_tag(tag, macro=True))
    if standard.language in (None, "und"):  # which the data would make English
        return "und", standard.script or ""
    language = standard.maximize()
    # NLLB names Korean's script by its letters alone.
    return language.language or "", {"Hang": "Kore"}.get(language.script or "", language.script or "")


def did_you_mean_language(language: str, known: Iterable[str]) -> str:
    """Returns what to add to an error about an unknown language, such as `; did you mean 'zh-Hant'?` for `zh-TW`; an
    empty string if readers of no known language can be expected to read it."""
    import langcodes

    matches = (
        langcodes.closest_match(language, list(known), max_distance=_SUGGESTED, ignore_script=ignore_script)[0]
        for ignore_script in (False, True)
    )
    nearest = next((tag for tag in matches if tag != "und"), "")
    return suggestion(nearest) if nearest else ""


def counts_as(tag: str, asked: Sequence[str]) -> str | None:
    """Returns which of the languages that were asked for a tag is: itself, one that lacks its region or its usual
    script, such as `en` for `en-US` and `zh` for `zh-Hans-CN`, but not for `zh-TW`, or the same by another name, such
    as `ar` for `arb-Arab`. None for another language."""
    if tag in asked:
        return tag
    found = next((each for each in asked if tag.startswith(f"{each}-") and _same_script(tag, each)), None)
    return found or _nearest(tag, tuple(asked), 0) or None


@cache
def _same_script(tag: str, other: str) -> bool:
    return language_and_script(tag) == language_and_script(other)


def learned_language(language: str, known: Sequence[str], farthest: int = _NEAR) -> str:
    """Returns the language among those that a model has learned which a tag means: the language itself, or the nearest
    one of the same script by CLDR's distances, up to `farthest`. A tag without a script or a region may mean any
    script.

    Examples:
        >>> learned_language("arb-Arab", ["en", "ar", "pt"]), learned_language("pt-BR", ["en", "ar", "pt"])
        ('ar', 'pt')
    """
    language = normalize_language(language)
    found = language if language in known else _nearest(language, tuple(known), farthest)
    if not found:
        raise UnknownLanguageError(
            f"this model has not learned {language!r}; its languages are {', '.join(known)}"
            f"{did_you_mean_language(language, known)}"
        )
    return found


def is_same_language(one: str, other: str) -> bool:
    """Returns whether a tag means another one, such as `en-GB` and `en`."""
    return one == other or bool(_nearest(one, (other,), SAME))


@lru_cache(1 << 10)
def _nearest(language: str, known: tuple[str, ...], farthest: int) -> str:
    import langcodes

    others = [tag for tag in known if tag != "und"]
    if language.partition("-")[0] in ("und", "mul", "zxx"):
        return ""
    if "-" in language:
        script = language_and_script(language)[1]
        others = [tag for tag in others if language_and_script(tag)[1] == script]
    distance, found = min(((langcodes.tag_distance(language, tag), tag) for tag in others), default=(1 << 10, ""))
    if distance > farthest:
        return ""
    if distance > SAME:
        logger.warning("this model has not learned %s: its texts are read as %s, which is near", language, found)
    return found


def language_id(language: str, known: list[str]) -> int:
    """Returns the index of a language among the languages that a model has learned (`learned_language`)."""
    return known.index(learned_language(language, known))

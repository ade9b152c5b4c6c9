"""Language tags: BCP 47 (RFC 5646), the only spelling of languages in babelens. Tags are normalized (`DE` -> `de`,
`sr-latn` -> `sr-Latn`, the deprecated `iw` -> `he`) or rejected with an error; a language is never guessed. Which of a
model's or a data set's languages a tag means follows CLDR's distances (`langcodes`)."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence, Sized
from functools import cache, lru_cache
from typing import Any

from .errors import InputError, LanguageTagError, suggestion

# language [-extlang] [-Script] [-REGION] [-variant]*: the part of RFC 5646 that captions use.
_TAG = re.compile(
    r"[a-z]{2,3}(-[a-z]{3})?(-[a-z]{4})?(-([a-z]{2}|[0-9]{3}))?(-([a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*", re.IGNORECASE
)
# CLDR's distances: 5 from 'pt-BR' to 'pt-PT', 1 from 'nb' to 'no', 10 from 'arz' to 'ar', 12 from 'da' to 'no', and 24
# from 'uk' to 'ru', a useless suggestion.
_NEAR, _SUGGESTED = 10, 14
SAME = 5  # the same language under another name or in another country

logger = logging.getLogger(__name__)


def normalize_language(tag: str) -> str:
    """Returns the canonical BCP-47 spelling of the tag of a registered language.

    Examples:
        >>> normalize_language("zh_cn")
        'zh-CN'
    """
    if not isinstance(tag, str):
        raise LanguageTagError(f"{tag!r} is not a language tag; use BCP 47, such as 'de', 'zh-Hant' or 'pt-BR'")
    return _normalized(tag)


@cache
def _normalized(tag: str) -> str:
    import langcodes  # commands answer --help without it

    spelled = tag.replace("_", "-")
    if _TAG.fullmatch(spelled) is None:
        from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

        named = TO_LANGUAGE_CODE.get(tag.strip().lower(), "")  # 'pl' for 'Polish'
        named = {"jw": "jv"}.get(named, named)  # Whisper's code for Javanese is deprecated
        hint = suggestion(named) if named else "; use BCP 47, such as 'de', 'zh-Hant' or 'pt-BR'"
        raise LanguageTagError(f"{tag!r} is not a language tag{hint}")
    if not langcodes.tag_is_valid(spelled):
        country = f"und-{spelled.upper()}"
        hint = ""
        if langcodes.tag_is_valid(country):  # then the most widely spoken language of the country is suggested
            spoken = langcodes.Language.get(country).maximize().language
            hint = f"; {spelled.upper()} is a country: did you mean {spoken!r}?"
        raise LanguageTagError(
            f"{tag!r} names no registered language (BCP 47: 'ja' is Japanese, 'uk' Ukrainian, 'zh' Chinese){hint}"
        )
    return langcodes.standardize_tag(spelled)


def normalize_languages(tags: str | list[str] | tuple[str, ...]) -> list[str]:
    """Returns canonical tags in the given order, each once. A single tag counts as a list of one."""
    return list(dict.fromkeys(map(normalize_language, [tags] if isinstance(tags, str) else tags)))


def language_for_each(language: Any, count: int) -> list[str]:
    """Returns one canonical tag for each of `count` texts, from one tag for all texts or one tag for each."""
    if isinstance(language, bytes | Mapping) or not isinstance(language, Sized) or not isinstance(language, Iterable):
        return [normalize_language(language)]  # type: ignore[arg-type]  # which rejects it
    tags = [language] * count if isinstance(language, str) else list(language)
    if len(tags) != count:
        raise InputError(f"{count} texts came with {len(tags)} language tags: give one for all, or one for each text")
    return [normalize_language(tag) for tag in tags]


# ---- Matching ----


@lru_cache(1 << 10)
def language_and_script(tag: str) -> tuple[str, str]:
    """Returns the macrolanguage (`ar` for `arb`) and the likely script of a tag (`zh-TW` is written in `Hant`)."""
    import langcodes

    standard = langcodes.Language.get(langcodes.standardize_tag(tag, macro=True))
    if standard.language in (None, "und"):  # which the data would turn into English
        return "und", standard.script or ""
    language = standard.maximize()
    # NLLB names only the letters of Korean's script.
    return language.language or "", {"Hang": "Kore"}.get(language.script or "", language.script or "")


def did_you_mean_language(language: str, known: Iterable[str]) -> str:
    """Returns the ending for an error about an unknown language, such as `; did you mean 'zh-Hant'?` for `zh-TW`, or
    "" if readers of the known languages are unlikely to read it."""
    import langcodes

    for ignore_script in (False, True):
        nearest, _ = langcodes.closest_match(language, list(known), _SUGGESTED, ignore_script=ignore_script)
        if nearest != "und":
            return suggestion(nearest)
    return ""


def counts_as(tag: str, asked: Sequence[str]) -> str | None:
    """Returns the requested language that a tag matches, without its region or usual script or under another name, or
    None: `en` for `en-US`, `zh` for `zh-Hans-CN` but not for `zh-TW`, `ar` for `arb-Arab`."""
    if tag in asked:
        return tag
    shorter = (each for each in asked if tag.startswith(f"{each}-"))
    found = next((each for each in shorter if language_and_script(tag) == language_and_script(each)), None)
    return found or _nearest(tag, tuple(asked), 0) or None


def learned_language(language: str, known: Sequence[str], farthest: int = _NEAR) -> str:
    """Returns the learned language that a tag means: the nearest one with the same script by CLDR's distances, up to
    `farthest`. A tag without a script or a region matches any script.

    Examples:
        >>> learned_language("arb-Arab", ["en", "ar", "pt"]), learned_language("pt-BR", ["en", "ar", "pt"])
        ('ar', 'pt')
    """
    language = normalize_language(language)
    found = language if language in known else _nearest(language, tuple(known), farthest)
    if not found:
        raise LanguageTagError(
            f"this model has not learned {language!r}; its languages are {', '.join(known)}"
            f"{did_you_mean_language(language, known)}"
        )
    return found


def is_same_language(one: str, other: str) -> bool:
    """Returns whether two tags mean the same language, such as `en-GB` and `en`."""
    return one == other or bool(_nearest(one, (other,), SAME))


@lru_cache(1 << 10)
def _nearest(language: str, known: tuple[str, ...], farthest: int) -> str:
    import langcodes

    if language.partition("-")[0] in ("und", "mul", "zxx"):
        return ""
    others = [tag for tag in known if tag != "und"]
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
    return known.index(learned_language(language, known))

"""Language tags: BCP 47 (RFC 5646), the only spelling of languages in babelens. Tags are normalized (`DE` -> `de`,
`sr-latn` -> `sr-Latn`, the deprecated `iw` -> `he`) or rejected with an error; a language is never guessed."""

import re
from collections.abc import Iterable, Mapping, Sized
from functools import cache, lru_cache
from typing import Any

from .errors import InputError, LanguageTagError, suggestion

# BCP 47's tag of a text in no stated language.
UNDETERMINED = "und"
# language [-extlang] [-Script] [-REGION] [-variant]*: the part of RFC 5646 that captions use.
_TAG = re.compile(
    r"[a-z]{2,3}(-[a-z]{3})?(-[a-z]{4})?(-([a-z]{2}|[0-9]{3}))?(-([a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*", re.IGNORECASE
)


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


@lru_cache(1 << 10)
def language_and_script(tag: str) -> tuple[str, str]:
    """Returns the macrolanguage (`ar` for `arb`) and the likely script of a tag (`zh-TW` is written in `Hant`)."""
    import langcodes
    from langcodes.data_dicts import LIKELY_SUBTAGS, MACROLANGUAGES

    standard = langcodes.Language.get(langcodes.standardize_tag(tag, macro=True))
    if standard.language in (None, "und"):  # which the data would turn into English
        return "und", standard.script or ""
    language = standard.maximize()
    if standard.script is None and standard.language not in LIKELY_SUBTAGS:  # then the data says Latin
        language = langcodes.Language.get(MACROLANGUAGES.get(standard.language, standard.language)).maximize()
    # NLLB names only the letters of Korean's script, and Immich those of Japanese's.
    script = {"Hang": "Kore", "Hira": "Jpan"}.get(language.script or "", language.script or "")
    return standard.language, script


def language_for_each(language: Any, count: int) -> list[str]:
    """Returns one canonical tag for each of `count` texts, from one tag for all texts or one tag for each."""
    if isinstance(language, bytes | Mapping) or not isinstance(language, Sized) or not isinstance(language, Iterable):
        return [normalize_language(language)]  # type: ignore[arg-type]  # which rejects it
    tags = [language] * count if isinstance(language, str) else list(language)
    if len(tags) != count:
        raise InputError(f"{count} texts came with {len(tags)} language tags: give one for all, or one for each text")
    return [normalize_language(tag) for tag in tags]

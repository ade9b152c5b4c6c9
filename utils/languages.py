"""Language tags: BCP 47 (RFC 5646), the only spelling of languages in babelens.

Tags are normalized (`DE` -> `de`, `zh_cn` -> `zh-CN`, `sr-latn` -> `sr-Latn`, the deprecated `iw` -> `he`) or rejected
with an error; a language is never guessed. `langcodes` provides the registered subtags. `language_matching` compares
tags; saved folders compare them by form (`in_folders`).
"""

import re
from collections.abc import Iterable, Mapping, Sized
from functools import cache
from typing import Any

from .errors import InputError, LanguageTagError, suggestion

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
    named = _tag_of_name(tag) if isinstance(tag, str) else ""
    hint = suggestion(named) if named else "; use BCP 47, such as 'de', 'zh-Hant' or 'pt-BR'"
    return LanguageTagError(f"{tag!r} is not a language tag{hint}")


def _tag_of_name(name: str) -> str:
    """Returns the tag of a language from its English name, such as `pl` for `Polish`, or an empty string."""
    from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

    code = TO_LANGUAGE_CODE.get(name.strip().lower(), "")
    return {"jw": "jv"}.get(code, code)  # Whisper's code for Javanese is deprecated


def _spoken_in(code: str) -> str:
    """Returns the ending for an error about the code of a country: its most widely spoken language."""
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

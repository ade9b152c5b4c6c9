"""Stands in for the package's `utils` in saved folders: plain ValueErrors, language tags normalized by form."""

import re
from collections.abc import Sequence
from typing import Any, ClassVar

ImageError = InputError = LanguageTagError = ModelFolderError = ModelKindError = ValueError
MissingExtraError = ImportError


class HubCodeMixin:
    """Marks a class that Auto classes load."""

    auto_classes: ClassVar[tuple[str, ...]]


UNDETERMINED = "und"
_TAG = re.compile(  # language, script, region and variants
    r"([a-z]{2,3}(?:-[a-z]{3})?)(-[a-z]{4})?(-(?:[a-z]{2}|[0-9]{3}))?((?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*)",
    re.IGNORECASE,
)
_DEPRECATED = {"in": "id", "iw": "he", "ji": "yi", "jw": "jv", "mo": "ro", "tl": "fil"}


def normalize_language(tag: str) -> str:
    """Returns the canonical spelling of a BCP-47 tag: `zh_cn` -> `zh-CN`."""
    match = _TAG.fullmatch(tag.replace("_", "-")) if isinstance(tag, str) else None
    if match is None:
        raise ValueError(f"{tag!r} is not a language tag; use BCP 47, such as 'de', 'zh-Hant' or 'pt-BR'")
    language, script, region, variants = match.groups("")
    language = _DEPRECATED.get(language.lower(), language.lower())
    if language == "sh":
        language, script = "sr", script or "-Latn"
    return language + script.title() + region.upper() + variants.lower()


def normalize_languages(tags: str | Sequence[str]) -> list[str]:
    return list(dict.fromkeys(map(normalize_language, [tags] if isinstance(tags, str) else tags)))


def language_for_each(language: Any, count: int) -> list[str]:
    tags = [language] * count if isinstance(language, str) else list(language)
    if len(tags) != count:
        raise ValueError(f"{count} texts came with {len(tags)} language tags: give one for all, or one for each text")
    return [normalize_language(tag) for tag in tags]


def language_and_script(tag: str) -> tuple[str, str]:
    """Returns the language and the script that a tag states; Taiwan, Hong Kong and Macao write Chinese in `Hant`."""
    primary, *others = tag.split("-")
    if primary == "zh" and not {"TW", "HK", "MO"}.isdisjoint(others):
        return primary, "Hant"
    return primary, next((each for each in others if len(each) == 4 and each.isalpha()), "")

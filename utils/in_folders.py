"""The replacement for the modules of `utils` in saved folders, which the exporter (`hub_code`) puts at the beginning
of `dual_encoder.py`: plain ValueErrors, language tags normalized by form. Modules in a folder import nothing else from
`utils`, except from `language_matching` (`matching_in_folders`) and inside functions that only the package calls."""

import re
from collections.abc import Sequence
from typing import Any, ClassVar

ImageError = InputError = LanguageTagError = ModelFolderError = ModelKindError = ValueError
MissingExtraError = ImportError


class HubCodeMixin:
    """Marks a class that Auto classes load."""

    auto_classes: ClassVar[tuple[str, ...]]


UNDETERMINED = "und"
_TAG = re.compile(
    r"(?P<language>[a-z]{2,3})(?P<extlang>-[a-z]{3})?(?P<script>-[a-z]{4})?(?P<region>-(?:[a-z]{2}|[0-9]{3}))?"
    r"(?P<variants>(?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*)",
    re.IGNORECASE,
)
_DEPRECATED = {"in": "id", "iw": "he", "ji": "yi", "jw": "jv", "mo": "ro", "tl": "fil"}


def normalize_language(tag: str) -> str:
    """Returns the canonical spelling of a BCP-47 tag: `zh_cn` -> `zh-CN`."""
    match = _TAG.fullmatch(tag.replace("_", "-")) if isinstance(tag, str) else None
    if match is None:
        raise ValueError(f"{tag!r} is not a language tag; use BCP 47, such as 'de', 'zh-Hant' or 'pt-BR'")
    language, script = (match["language"] + (match["extlang"] or "")).lower(), match["script"] or ""
    if language == "sh":
        language, script = "sr", script or "-Latn"
    region, variants = (match["region"] or "").upper(), match["variants"].lower()
    return _DEPRECATED.get(language, language) + script.title() + region + variants


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

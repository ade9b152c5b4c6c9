"""What a report tells about a language: its English name and its script, both from IANA's registry of subtags."""

import re
from dataclasses import dataclass
from functools import cache

import langcodes
from langcodes.registry_parser import parse_registry

_VARIANT = re.compile(r"(\w+) \((\w+) variant\)")


@dataclass(frozen=True)
class LanguageFacts:
    """A language as a report shows it.

    Args:
        tag: its BCP-47 tag.
        name: its English name; the tag where there is none.
        script: the English name of the script that it is usually written in.
    """

    tag: str
    name: str
    script: str


def language_facts(tag: str) -> LanguageFacts:
    """The facts of a language; of a pair of languages, such as `en-de`, or anything else, its tag."""
    if not is_language(tag):
        return LanguageFacts(tag, tag, "")
    language, names = langcodes.Language.get(tag), _names()
    name = names.get(("language", language.language or ""), tag)
    script = language.maximize().script or ""
    details = [names.get(("script", language.script), language.script)] if language.script else []
    details += [names.get(("region", language.territory), language.territory)] if language.territory else []
    return LanguageFacts(tag, f"{name} ({', '.join(details)})" if details else name, names.get(("script", script), ""))


def is_language(tag: str) -> bool:
    """Whether this is the canonical tag of a language. `en-de`, of translations from English, is none: the tag of
    Germany's English is `en-DE`."""
    return langcodes.tag_is_valid(tag) and langcodes.standardize_tag(tag) == tag


@cache
def _names() -> dict[tuple[str, str], str]:
    """(type, subtag) -> the registry's first description, without remarks such as "(macrolanguage)"."""
    return {
        (entry["Type"], entry["Subtag"]): _short(entry["Description"][0])
        for entry in parse_registry()
        if "Subtag" in entry and entry["Type"] in ("language", "script", "region")
    }


def _short(description: str) -> str:
    if variant := _VARIANT.fullmatch(description):  # "Han (Traditional variant)"
        return f"{variant[2]} {variant[1]}"
    return description.partition(" (")[0].removeprefix("Modern ")

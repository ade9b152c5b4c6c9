"""CLDR's names and keywords of emoji as translations: some 3,500 short texts about things, animals, people and places
in each of about 120 languages, with the same in English.

They name what sentences for the learning of a language, which are few, often miss. Signs (arrows, buttons, flags,
symbols) are left out: nobody searches photographs for them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..npm import Package, fetch_package
from .benchmark import DEFAULT_CACHE
from .build import KEYWORD_SEPARATOR, Annotation, read_annotations, read_sources

_SIGNS = re.compile("flag|symbol|arrow|button")
_LEAST = 0.6  # share of the emoji that a language names

Pairs = tuple[list[str], list[str]]  # texts of a language, and the native translation of each


@dataclass(frozen=True)
class NameTranslations:
    """Names in a language, and their translations.

    Args:
        language: the language as CLDR writes it; it may be a near relative of the one that learns from them.
        weight: of each of them beside a sentence.
        groups: names, and keywords.
    """

    language: str
    weight: float
    groups: Sequence[Pairs]


class EmojiNames:
    """All names, by language.

    Args:
        annotations: by language and emoji, as `read_annotations` returns them.
    """

    def __init__(self, annotations: dict[str, dict[str, Annotation]]) -> None:
        english = annotations["en"].items()
        self.emoji = [each for each, annotation in english if not _SIGNS.search(annotation.name)]
        wanted = _LEAST * len(self.emoji)
        self.annotations = {
            language: named
            for language, named in annotations.items()
            if sum(each in named for each in self.emoji) >= wanted
        }

    @property
    def languages(self) -> list[str]:
        return list(self.annotations)

    def sample(self, language: str, every: int = 3) -> list[str]:
        """Some names in a language, of the same emoji in each."""
        named = self.annotations[language]
        return [named[each].name for each in self.emoji[::every] if each in named]

    def translations(self, language: str, native: str, weight: float) -> NameTranslations:
        """Names and keywords in a language with those in the native language."""
        mine, theirs = self.annotations[language], self.annotations[native]
        both = [(mine[each], theirs[each]) for each in self.emoji if each in mine and each in theirs]
        names = [(text.name, native.name) for text, native in both]
        keywords = [
            (KEYWORD_SEPARATOR.join(text.keywords), KEYWORD_SEPARATOR.join(native.keywords))
            for text, native in both
            if text.keywords and native.keywords
        ]
        groups = [([text for text, _ in pairs], [native for _, native in pairs]) for pairs in (names, keywords)]
        return NameTranslations(language, weight, groups)


@cache
def load_emoji_names(cache_dir: str | Path | None = None) -> EmojiNames:
    """Reads the names of all languages from CLDR's pinned package, which is fetched once.

    Raises:
        SourceUnavailableError: if the package cannot be fetched.
        MissingExtraError: if there is no npm client to fetch it.
    """
    source = read_sources()["names"]
    package = Package(source["package"], source["version"], source["integrity"])
    tarball = fetch_package(package, Path(cache_dir or DEFAULT_CACHE) / "packages")
    return EmojiNames(read_annotations([tarball]))

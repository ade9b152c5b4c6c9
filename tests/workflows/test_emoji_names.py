"""Names of emoji are chosen by what sentences look like: of the language, of a near relative, or none."""

import logging

import pytest

from babelens.data.emoji.benchmark import EmojiNames
from babelens.data.emoji.build import Annotation
from babelens.workflows.emoji_names import names_for

ENGLISH = ["dog", "cat", "horse", "red apple", "boat", "house", "tree", "mountain", "child", "up arrow"]
POLISH = ["pies", "kot", "koń", "czerwone jabłko", "łódź", "dom", "drzewo", "góra", "dziecko", "strzałka w górę"]
GREEK = ["σκύλος", "γάτα", "άλογο", "κόκκινο μήλο", "βάρκα", "σπίτι", "δέντρο", "βουνό", "παιδί", "βέλος"]


def named(texts):
    return {str(place): Annotation(text, [text, f"{text}!"]) for place, text in enumerate(texts)}


@pytest.fixture
def names():
    few = dict(list(named(POLISH).items())[:3])
    return EmojiNames({"en": named(ENGLISH), "pl": named(POLISH), "el": named(GREEK), "xx": few})


def test_signs_and_languages_with_few_names_are_left_out(names):
    assert names.languages == ["en", "pl", "el"]
    (texts, natives), keywords = names.translations("pl", "en", 0.2).groups
    assert texts == POLISH[:-1] and natives == ENGLISH[:-1]
    assert keywords[0][0] == "pies, pies!" and keywords[1][0] == "dog, dog!"


def test_the_language_is_found_by_its_sentences(names, caplog):
    chosen = names_for({"pl": POLISH, "szl": POLISH, "bn": ["একটি কুকুর", "একটি বিড়াল"]}, "en", names)
    assert {tag: each.language for tag, each in chosen.items()} == {"pl": "pl", "szl": "pl"}
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert names_for({"el": POLISH}, "en", names)["el"].language == "pl"
    assert "look like pl and not like el" in caplog.text


def test_without_names_in_the_native_language_there_are_none(names):
    assert names_for({"pl": POLISH}, "sw", names) == {}

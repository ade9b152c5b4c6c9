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
from babelens.inference import Seq2SeqTranslator
from babelens.inference.embedder import Embedder
from babelens.utils.errors import LanguageTagError
from tests.support.retrieval_fixtures import letters_tokenizer
from tests.support.translation_models import save, save_nllb

TEXTS = ["a thing 7", "abc", "the face of another thing 90", "b"]


@pytest.fixture(scope="module")
def nllb_folder(tmp_path_factory):
    return save_nllb(tmp_path_factory.mktemp("nllb"))


@pytest.fixture
def marian_folder(tmp_path):
    save(MarianMTModel, MarianConfig, letters_tokenizer(model_max_length=36), tmp_path)
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


# ---- Models of two languages ----


def test_a_model_of_two_languages_translates_these(marian_folder):
    translator = Seq2SeqTranslator.from_pretrained(marian_folder, pair=("EN", "de"), batch_size=3)
    found = translator.translate(TEXTS, "en", "de")
    assert found == [by_hand(marian_folder, text) for text in TEXTS] and all(found)
    with pytest.raises(LanguageTagError, match="translates en to de, not de to en"):
        translator.translate(TEXTS, "de", "en")


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

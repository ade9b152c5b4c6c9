import numpy as np
import pytest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from babelens import CrossLingualConsistency, CrossLingualConsistencyConfig
from babelens.data.batching.views import retrieval_set
from babelens.evaluation import evaluate_consistent_retrieval
from babelens.evaluation.ranking import score_ranks
from babelens.inference import Seq2SeqTranslator
from babelens.inference.embedder import Embedder
from tests.support.translation_models import save_nllb

TEXTS = ["a thing 7", "abc", "the face of another thing 90", "b"]


@pytest.fixture(scope="module")
def nllb_folder(tmp_path_factory):
    return save_nllb(tmp_path_factory.mktemp("nllb"))


def by_hand(folder, text: str, source: str, target: str) -> str:
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    tokenizer.src_lang = source
    forced = tokenizer.convert_tokens_to_ids(target)
    generated = model.generate(**tokenizer(text, return_tensors="pt"), forced_bos_token_id=forced)
    return tokenizer.decode(generated[0], skip_special_tokens=True)


def test_translations_are_those_of_transformers(nllb_folder):
    translator = Seq2SeqTranslator.from_pretrained(nllb_folder, batch_size=3)
    codes = {"de": "deu_Latn", "ko": "kor_Hang", "zh": "zho_Hans", "zh-Hant": "zho_Hant", "ar": "arb_Arab"}
    found = {tag: translator.translate(TEXTS, "en", tag) for tag in codes}
    for tag, code in codes.items():
        assert found[tag] == [by_hand(nllb_folder, text, "eng_Latn", code) for text in TEXTS]
        assert all(found[tag])
    assert len({tuple(texts) for texts in found.values()}) > 1  # the target matters
    assert translator.translate(TEXTS, "DE", "zh_hans") == [
        by_hand(nllb_folder, text, "deu_Latn", "zho_Hans") for text in TEXTS
    ]


def test_a_translation_model_serves_retrieval(clip_parts, caption_corpus, nllb_folder):
    """Each caption is scored in its own words and in the translation model's."""
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

import pytest

from babelens.evaluation import evaluate_retrieval, evaluate_translate_test
from babelens.inference import CachedTranslator
from babelens.utils.errors import LanguageTagError

WORDS = {"en": "thing", "de": "ding"}


@pytest.fixture
def translator(word_translator):
    class Both(word_translator):
        def translate(self, texts, source, target):
            return super().translate([text.replace("sache", "ding") for text in texts], source, target)

    return Both(WORDS)


def test_a_model_that_errs_in_german_gains_by_translation(color_embedder, caption_corpus, translator, tmp_path):
    embedder = color_embedder(mistakes={f"ding {10 * number}": 90 for number in range(9)})
    ranks, translated_ranks = {}, {}
    cached = CachedTranslator(translator, key="words", folder=tmp_path)
    found = evaluate_translate_test(
        embedder, caption_corpus, ["en", "DE"], cached, ranks=ranks, translated_ranks=translated_ranks
    )
    plain = evaluate_retrieval(embedder, caption_corpus, ["en", "de"])
    assert {tag: each["untranslated"] for tag, each in found.items()} == plain
    assert found["en"] == {"untranslated": plain["en"], "translated": None}
    german = found["de"]
    assert german["translated"]["t2i_r1"] == 100.0 > plain["de"]["t2i_r1"]
    gain = {name: german["translated"][name] - plain["de"][name] for name in plain["de"] if not name.startswith("n_")}
    assert german["gain"] == gain and gain["t2i_r1"] > 30 and german["n_empty"] == 0
    assert list(ranks) == ["en", "de"] and list(translated_ranks) == ["de"]
    assert (translated_ranks["de"].text_to_image == 1).all()
    assert embedder.n_images == 24  # once for both, and once for the plain evaluation


class OnlyEnglish:
    def __init__(self, embedder):
        self.embedder = embedder

    def encode_image(self, images, **options):
        return self.embedder.encode_image(images, **options)

    def encode_text(self, texts, *, language, **options):
        if language != "en":
            raise LanguageTagError(f"this model has not learned {language!r}")
        return self.embedder.encode_text(texts, language=language, **options)


def test_a_language_that_the_model_has_not_learned(color_embedder, caption_corpus, translator):
    found = evaluate_translate_test(OnlyEnglish(color_embedder()), caption_corpus, ["de"], translator)["de"]
    assert found["untranslated"] is None and "gain" not in found and found["translated"]["t2i_r1"] == 100.0
    with pytest.raises(LanguageTagError, match="has not learned 'de'"):
        evaluate_translate_test(OnlyEnglish(color_embedder()), caption_corpus, ["en"], translator, to="de")

import numpy as np
import pytest
import torch

from babelens import CrossLingualConsistency, CrossLingualConsistencyConfig
from babelens.data.batching.views import retrieval_set
from babelens.evaluation import consistency as consistency_module, consistency_scores, evaluate_consistent_retrieval
from babelens.evaluation.consistency import parallel_captions
from babelens.evaluation.ranking import score_ranks
from babelens.inference.embedder import Embedder
from babelens.utils.errors import InputError
from tests.support.retrieval_fixtures import ColorEmbedder, WordTranslator

LANGUAGES = ["en", "de", "es", "ar"]


def clc(*languages: str, aggregation: str = "mean") -> CrossLingualConsistency:
    return CrossLingualConsistency(CrossLingualConsistencyConfig(languages=languages, aggregation=aggregation))


def trained_clc(n_languages: int = 4) -> CrossLingualConsistency:
    model = clc(*LANGUAGES[:n_languages], aggregation="mlp")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.rand(weight.shape, generator=generator) - 0.3)
    return model


@pytest.fixture
def one_vendor(emoji_corpus):
    return emoji_corpus.filter(lambda row: row["vendor"] == "twemoji")


def test_captions_are_paired_as_translations(caption_corpus):
    """Odd things have two captions in de and one in en; two of the ten things have two rows each."""
    from_english = parallel_captions(caption_corpus, retrieval_set(caption_corpus, "en"), ["de"])["de"]
    assert from_english == [[f"ding {n}", f"sache {n}"] if n % 20 else [f"ding {n}"] for n in range(0, 100, 10)]
    german = retrieval_set(caption_corpus, "de")
    expected = [[f"thing {text.split()[1]}"] for text in german.texts]
    assert parallel_captions(caption_corpus, german, ["en"])["en"] == expected


@pytest.mark.parametrize("aggregation", ["mean", "mlp"])
def test_a_real_model_equals_brute_force(clip_parts, caption_corpus, aggregation):
    embedder = Embedder(*clip_parts, batch_size=5)
    model = clc("en", "de") if aggregation == "mean" else trained_clc(2)
    images = embedder.encode_image(retrieval_set(caption_corpus, "en").images).astype(np.float64)

    def encode(text, language):
        return embedder.encode_text([text], language=language)[0].astype(np.float64)

    for language in ("en", "de"):
        queries = retrieval_set(caption_corpus, language)
        other = "de" if language == "en" else "en"
        scores = np.zeros((2, len(queries.texts), 12))
        for number, text in enumerate(queries.texts):
            translations = parallel_captions(caption_corpus, queries, [other])[other][number]
            by_language = {language: [text], other: translations}
            for place, tag in enumerate(("en", "de")):
                cosines = [images @ encode(one, tag) for one in by_language[tag]]
                scores[place, number] = 1 + np.mean(cosines, axis=0)

        found, right = consistency_scores(embedder, caption_corpus, language, ["en", "de"])
        np.testing.assert_allclose(found.numpy(), scores, rtol=0, atol=1e-5)
        assert right == queries.text_to_images
        with torch.no_grad():
            joint = model(found).numpy()
        for protocol in ("standard", "mla"):
            numbers = evaluate_consistent_retrieval(embedder, caption_corpus, language, model, protocol=protocol)
            assert numbers == {language: score_ranks(joint, right, protocol=protocol).recalls()}


def test_clc_c_is_fitted_on_scores_of_one_split_and_asked_about_another(one_vendor):
    """Spanish is wrong about everything: it gets the lowest weight."""
    wrong = {f"cara {10 * n}": 10 * ((7 * n + 5) % 12) for n in range(12)}
    embedder = ColorEmbedder(wrong)
    train, test = (one_vendor.filter(lambda row, s=split: row["split"] == s) for split in ("train", "test"))
    scores, right = consistency_scores(embedder, train, "en", LANGUAGES)
    assert scores.shape == (4, 8, 8) and right == [[n] for n in range(8)]
    model = clc(*LANGUAGES, aggregation="mlp")
    losses = model.fit(scores, right)
    weights = (model.output.weight @ model.hidden.weight).squeeze(0)
    assert losses[-1] < losses[0] and weights.argmin() == 2
    assert evaluate_consistent_retrieval(embedder, test, "en", model)["en"]["t2i_r1"] == 100


def test_scores_are_joined_in_parts_to_the_same_numbers(one_vendor, monkeypatch):
    model = trained_clc()
    embedder = ColorEmbedder({"face 30": 40, "gesicht 50": 60})
    whole = evaluate_consistent_retrieval(embedder, one_vendor, LANGUAGES, model)
    monkeypatch.setattr(consistency_module, "_SCORES_AT_ONCE", 5 * 4 * 12)
    assert evaluate_consistent_retrieval(embedder, one_vendor, LANGUAGES, model) == whole


def test_a_translator_that_knows_the_names_gives_the_numbers_of_the_corpus(one_vendor):
    mistakes = {"face 30": 40, "gesicht 50": 60}
    translator = WordTranslator({"en": "face", "de": "gesicht", "es": "cara", "ar": "وجه"})
    model = trained_clc()
    expected = evaluate_consistent_retrieval(ColorEmbedder(mistakes), one_vendor, ["en", "de"], model)
    found = evaluate_consistent_retrieval(
        ColorEmbedder(mistakes), one_vendor, ["en", "de"], model, translator=translator
    )
    assert found == expected
    assert translator.asked == [(a, b, 12) for a in ("en", "de") for b in LANGUAGES if b != a]


class Mute:
    def __init__(self, answer):
        self.answer = answer

    def translate(self, texts, source, target):
        return self.answer(list(texts))


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [(lambda texts: texts[:-1], "11 translations"), (lambda texts: [*texts[:3], " ", *texts[4:]], "face 30")],
)
def test_what_a_translator_leaves_out_is_named(one_vendor, answer, complaint):
    with pytest.raises(InputError, match=complaint):
        evaluate_consistent_retrieval(ColorEmbedder(), one_vendor, "en", clc("en", "de"), translator=Mute(answer))

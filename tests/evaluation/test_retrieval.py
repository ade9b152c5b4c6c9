import json
from pathlib import Path

import evaluate
import numpy as np
import pytest

from babelens.evaluation import evaluate_retrieval, evaluate_translate_test
from babelens.evaluation.metric import RetrievalRecall
from babelens.evaluation.ranking import score_ranks
from babelens.inference import CachedTranslator
from babelens.utils.errors import CorpusError, LanguageTagError
from tests.support.retrieval_fixtures import ColorEmbedder, WordTranslator

FIXTURE = json.loads((Path(__file__).parents[1] / "fixtures" / "mla_metrics.json").read_text())["multi"]
NAMES = {"t2i_r1", "t2i_r5", "t2i_r10", "i2t_r1", "i2t_r5", "i2t_r10", "mean_recall", "n_images", "n_texts"}


def test_images_are_encoded_once_for_all_languages(caption_corpus):
    embedder = ColorEmbedder()
    results = evaluate_retrieval(embedder, caption_corpus, ["DE", "en", "de"])
    assert list(results) == ["de", "en"]
    assert all(numbers["mean_recall"] == 100 for numbers in results.values())
    assert embedder.n_images == 12
    assert {language for _, language in embedder.texts} == {"de", "en"}


def test_unknown_languages_and_protocols_are_refused_before_anything_is_encoded(caption_corpus):
    embedder = ColorEmbedder()
    with pytest.raises(CorpusError, match="no captions in fr"):
        evaluate_retrieval(embedder, caption_corpus, ["de", "fr"])
    with pytest.raises(ValueError, match="unknown protocol 'usual'"):
        evaluate_retrieval(embedder, caption_corpus, "de", protocol="usual")
    assert (embedder.n_images, embedder.texts) == (0, [])


def test_each_language_searches_its_own_images_on_request(caption_corpus):
    """WIT is evaluated so; images without a caption in any of the languages are not even encoded."""
    keep = {"en": range(3), "de": range(2, 7)}
    corpus = caption_corpus.map(
        lambda row, index: {"captions": [c for c in row["captions"] if index in keep[c["language"]]]},
        with_indices=True,
        features=caption_corpus.features,
    )
    embedder = ColorEmbedder({"ding 20": 50})
    results = evaluate_retrieval(embedder, corpus, ["en", "de"], only_captioned=True)
    assert embedder.n_images == 7
    assert {language: numbers["n_images"] for language, numbers in results.items()} == {"en": 3, "de": 5}
    assert results["en"]["mean_recall"] == 100
    assert results["de"]["t2i_r1"] == pytest.approx(100 * 6 / 7)
    everything = evaluate_retrieval(ColorEmbedder(), corpus, ["en", "de"])
    assert [numbers["n_images"] for numbers in everything.values()] == [12, 12]


@pytest.mark.parametrize("protocol", ["standard", "mla"])
def test_captions_of_several_images_are_reported_in_both_readings(caption_corpus, protocol):
    """By image_id, of two images with the same caption one is always found too late; by text, both are right."""
    corpus = caption_corpus.select(range(6))  # of six things
    alike = corpus.map(
        lambda row, index: {
            "captions": [{"language": "en", "text": "thing 25" if index in (2, 3) else f"thing {index}0"}]
        },
        with_indices=True,
        features=corpus.features,
    )
    numbers = evaluate_retrieval(ColorEmbedder(), alike, "en", protocol=protocol)["en"]
    assert (numbers["n_equal_texts"], numbers["n_texts"]) == (2, 6)
    assert numbers["t2i_r1"] == pytest.approx(100 * 4 / 6)
    assert numbers["t2i_r5"] == 100
    if protocol == "standard":
        assert numbers["i2t_r1"] == pytest.approx(100 * 4 / 6)
    assert all(numbers[f"{name}_equal_texts"] == 100 for name in NAMES if not name.startswith("n_"))
    assert evaluate_retrieval(ColorEmbedder(), corpus, "en")["en"].keys() == NAMES


@pytest.mark.parametrize("protocol", ["standard", "mla"])
def test_the_metric_of_the_folder_gives_the_packages_numbers(protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    scores = np.array(FIXTURE["sim_text_by_image"])
    right = [[image] for image, count in enumerate(FIXTURE["captions_per_image"]) for _ in range(count)]
    expected = score_ranks(scores, right, protocol=protocol).recalls()
    metric = evaluate.load("./metrics/retrieval_recall", cache_dir=str(tmp_path))
    for start in range(0, len(scores), 4):
        metric.add_batch(predictions=scores[start : start + 4], references=right[start : start + 4])
    assert metric.compute(protocol=protocol) == expected and set(expected) == NAMES
    assert (
        RetrievalRecall(cache_dir=str(tmp_path)).compute(predictions=scores, references=right, protocol=protocol)
        == expected
    )
    if protocol == "mla":
        assert expected["mean_recall"] == pytest.approx(FIXTURE["AR"], rel=1e-6)
    else:
        assert {k: expected[f"i2t_r{k}"] for k in (1, 5, 10)} == {1: 12.5, 5: 75.0, 10: 100.0}
    rng = np.random.default_rng(0)  # ties, several right images, an image without a text
    tied, several = rng.integers(0, 4, (9, 6)).astype(float), [[i % 5, (i + 1) % 5] for i in range(9)]
    own = score_ranks(tied, several, protocol=protocol).recalls()
    found = RetrievalRecall(cache_dir=str(tmp_path)).compute(predictions=tied, references=several, protocol=protocol)
    assert found == own


@pytest.fixture
def translator():
    class Both(WordTranslator):
        def translate(self, texts, source, target):
            return super().translate([text.replace("sache", "ding") for text in texts], source, target)

    return Both({"en": "thing", "de": "ding"})


def test_a_model_that_errs_in_german_gains_by_translation(caption_corpus, translator, tmp_path):
    embedder = ColorEmbedder(mistakes={f"ding {10 * number}": 90 for number in range(9)})
    ranks = {}
    cached = CachedTranslator(translator, key="words", folder=tmp_path)
    found = evaluate_translate_test(embedder, caption_corpus, ["en", "DE"], cached, ranks=ranks)
    plain = evaluate_retrieval(embedder, caption_corpus, ["en", "de"])
    assert {tag: each["untranslated"] for tag, each in found.items()} == plain
    assert found["en"] == {"untranslated": plain["en"], "translated": None}
    german = found["de"]
    assert german["translated"]["t2i_r1"] == 100.0 > plain["de"]["t2i_r1"]
    gain = {name: german["translated"][name] - plain["de"][name] for name in plain["de"] if not name.startswith("n_")}
    assert german["gain"] == gain and gain["t2i_r1"] > 30 and german["n_empty"] == 0
    assert list(ranks) == ["en", "de"]
    assert embedder.n_images == 24  # once for both, and once for the plain evaluation


class OnlyEnglish(ColorEmbedder):
    def encode_text(self, texts, *, language, **options):
        if language != "en":
            raise LanguageTagError(f"this model has not learned {language!r}")
        return super().encode_text(texts, language=language, **options)


def test_a_language_that_the_model_has_not_learned(caption_corpus, translator):
    found = evaluate_translate_test(OnlyEnglish(), caption_corpus, ["de"], translator)["de"]
    assert found["untranslated"] is None and "gain" not in found and found["translated"]["t2i_r1"] == 100.0
    with pytest.raises(LanguageTagError, match="has not learned 'de'"):
        evaluate_translate_test(OnlyEnglish(), caption_corpus, ["en"], translator, to="de")

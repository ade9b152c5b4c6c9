"""Similarity of texts and bitext retrieval, against their definitions and against mteb."""

import sys

import numpy as np
import pytest
import tiny_mteb_tasks as tasks
from datasets import Dataset
from scipy.stats import spearmanr

from babelens.configuration.errors import CorpusError, InputError, MissingExtraError, ModelKindError
from babelens.data import as_translation_corpus
from babelens.data.readers.bitext import SIMILARITY
from babelens.evaluation import evaluate_bitext, evaluate_mteb, evaluate_similarity, mteb_model
from babelens.inference.embedder import Embedder

GERMAN = ["ein hund", "zwei katzen", "der rote ball", "haus", "das auto faehrt"]
ENGLISH = ["a dog", "two cats", "the red ball", "house", "the car drives"]
SCORES = [1.0, 4.0, 2.5, 0.5, 3.0]


@pytest.fixture
def embedder(clip_parts):
    return Embedder(*clip_parts)


def pairs_with_scores(rows):
    columns = zip(*rows, strict=True)
    return Dataset.from_dict(dict(zip(SIMILARITY, columns, strict=True)), features=SIMILARITY)


def translations(rows):
    return as_translation_corpus(Dataset.from_list([{"translation": row} for row in rows]))


def test_similarity_is_spearmans_of_each_pair_of_languages(embedder):
    rows = [(a, "de", b, "en", score) for a, b, score in zip(GERMAN, ENGLISH, SCORES, strict=True)]
    rows += [(a, "en", b, "en", score) for a, b, score in zip(ENGLISH, ENGLISH[::-1], SCORES, strict=True)]
    results = evaluate_similarity(embedder, pairs_with_scores(rows))
    assert list(results) == ["de-en", "en-en"] and results["de-en"]["n_pairs"] == 5
    german, english = (embedder.encode_text(texts, language="en") for texts in (GERMAN, ENGLISH))
    for pair, sides in {"de-en": (german, english), "en-en": (english, english[::-1])}.items():
        expected = spearmanr((sides[0] * sides[1]).sum(1), SCORES).statistic
        assert results[pair]["spearman"] == pytest.approx(100 * expected)


def test_both_agree_with_mteb(embedder):
    model = mteb_model(embedder)
    rows = list(zip(GERMAN, ENGLISH, SCORES, strict=True))
    (score,) = evaluate_mteb(model, [tasks.similarity(rows)])
    ours = evaluate_similarity(embedder, pairs_with_scores([(a, "de", b, "en", s) for a, b, s in rows]))
    assert ours["de-en"]["spearman"] == pytest.approx(100 * score.scores["cosine_spearman"])
    (score,) = evaluate_mteb(model, [tasks.bitext([row[:2] for row in rows])])
    recall = evaluate_bitext(embedder, translations([{"de": a, "en": b} for a, b, _ in rows]))
    assert recall["de-en"]["r1"] == pytest.approx(100 * score.scores["accuracy"])


def test_a_collapsed_model_has_no_correlation_and_equal_scores_are_refused(color_embedder):
    class Headless(color_embedder):
        def encode_text(self, texts, *, language, task=None):
            return super().encode_text(texts, language=language)

    rows = [(f"a {7}", "de", f"b {7}", "en", score) for score in SCORES]
    assert evaluate_similarity(Headless(), pairs_with_scores(rows))["de-en"] == {"spearman": 0.0, "n_pairs": 5}
    with pytest.raises(InputError, match=r"de-en: all 1 pairs of texts have the score 1\.0"):
        evaluate_similarity(Headless(), pairs_with_scores(rows[:1]))


def test_bitext_in_both_directions(color_embedder):
    """One text has two translations, and another is the translation of two texts; one is found wrongly."""

    class Headless(color_embedder):
        def encode_text(self, texts, *, language, task=None):
            return super().encode_text(texts, language=language)

    rows = [{"de": f"ding {10 * k}", "en": f"thing {10 * k}"} for k in range(8)]
    rows += [{"de": "ding 0", "en": "item 0"}, {"de": "sache 10", "en": "thing 10"}]
    results = evaluate_bitext(Headless({"ding 30": 50}), translations(rows))
    assert set(results) == {"de-en", "en-de"}
    assert (results["de-en"]["n_texts"], results["de-en"]["n_candidates"]) == (9, 9)
    # "thing 0" and "item 0" are alike and both right; "ding 30" lies where "thing 50" is.
    assert results["de-en"]["r1"] == pytest.approx(100 * 8 / 9)
    assert results["en-de"]["r1"] == pytest.approx(100 * 7 / 9)  # neither "thing 30" nor, for a tie, "thing 50"
    assert results["de-en"]["r10"] == results["en-de"]["r10"] == 100


def test_texts_of_several_pairs_of_languages_are_encoded_once(color_embedder):
    class Counting(color_embedder):
        def encode_text(self, texts, *, language, task=None):
            return super().encode_text(texts, language=language)

    words = {"de": "ding", "en": "thing", "es": "cosa", "fr": "chose"}
    rows = [{tag: f"{word} {10 * k}" for tag, word in words.items()} for k in range(6)]
    embedder = Counting()
    results = evaluate_bitext(embedder, translations(rows))
    assert len(results) == 12 and all(each["r1"] == 100 for each in results.values())
    assert len(embedder.texts) == 4 * 6


def test_bitext_equals_brute_force(embedder):
    corpus = translations([{"de": a, "en": b} for a, b in zip(GERMAN, ENGLISH, strict=True)])
    results = evaluate_bitext(embedder, corpus, [("en", "de")])
    assert list(results) == ["en-de", "de-en"]
    german, english = (embedder.encode_text(texts, language="en") for texts in (GERMAN, ENGLISH))
    ranks = {"de-en": german @ english.T, "en-de": english @ german.T}
    for way, cosines in ranks.items():
        best = [1 + np.sum(np.delete(row, index) >= row[index]) for index, row in enumerate(cosines)]
        for k in (1, 5, 10):
            assert results[way][f"r{k}"] == pytest.approx(100 * np.mean(np.array(best) <= k))


def test_the_head_for_texts_is_chosen(make_mural, embedder, monkeypatch):
    mural = Embedder(*make_mural())
    rows = [(a, "de", b, "en", score) for a, b, score in zip(GERMAN, ENGLISH, SCORES, strict=True)]
    by_images, by_texts = (
        evaluate_similarity(mural, pairs_with_scores(rows), task=task) for task in (None, "text_text")
    )
    assert by_images != by_texts
    first, second = (mural.encode_text(texts, language="de", task="text_text") for texts in (GERMAN, ENGLISH))
    expected = spearmanr((first * second).sum(1), SCORES).statistic
    assert by_texts["de-en"]["spearman"] == pytest.approx(100 * expected)
    corpus = translations([{"de": a, "en": b} for a, b in zip(GERMAN, ENGLISH, strict=True)])
    asked = []
    encode = mural.encode_text
    monkeypatch.setattr(
        mural, "encode_text", lambda *args, **given: asked.append(given["task"]) or encode(*args, **given)
    )
    evaluate_bitext(mural, corpus, task="text_text")
    assert asked == ["text_text", "text_text"]
    with pytest.raises(ModelKindError, match="no head for each task"):
        evaluate_bitext(embedder, corpus, task="text_text")


def test_languages_that_are_not_there_are_refused(embedder):
    with pytest.raises(CorpusError, match="fr"):
        evaluate_bitext(embedder, translations([{"de": "ein hund", "en": "a dog"}]), [("de", "fr")])


def test_without_scipy_the_error_names_the_extra(embedder, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(MissingExtraError, match=r"pip install scipy"):
        evaluate_similarity(embedder, pairs_with_scores([("a", "de", "b", "en", 1.0)]))

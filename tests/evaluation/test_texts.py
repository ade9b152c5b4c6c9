"""Bitext retrieval, against its definition and against mteb."""

import numpy as np
import pytest
from datasets import Dataset

from babelens.data import as_translation_corpus
from babelens.evaluation import evaluate_bitext, evaluate_mteb, mteb_model
from babelens.inference.embedder import Embedder
from babelens.utils.errors import ModelKindError
from tests.support import tiny_mteb_tasks as tasks

GERMAN = ["ein hund", "zwei katzen", "der rote ball", "haus", "das auto faehrt"]
ENGLISH = ["a dog", "two cats", "the red ball", "house", "the car drives"]
SCORES = [1.0, 4.0, 2.5, 0.5, 3.0]


@pytest.fixture
def embedder(clip_parts):
    return Embedder(*clip_parts)


def translations(rows):
    return as_translation_corpus(Dataset.from_list([{"translation": row} for row in rows]))


def test_bitext_agrees_with_mteb(embedder):
    model = mteb_model(embedder)
    rows = list(zip(GERMAN, ENGLISH, SCORES, strict=True))
    (score,) = evaluate_mteb(model, [tasks.bitext([row[:2] for row in rows])])
    recall = evaluate_bitext(embedder, translations([{"de": a, "en": b} for a, b, _ in rows]))
    assert recall["de-en"]["r1"] == pytest.approx(100 * score.scores["accuracy"])


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

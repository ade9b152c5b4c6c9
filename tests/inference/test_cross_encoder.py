from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from babelens.data.batching.views import retrieval_set
from babelens.evaluation import ranking
from babelens.evaluation.ranking import COSINE_TIE, ranks_by, score_ranks
from babelens.evaluation.retrieval import evaluate_retrieval
from babelens.inference import cross_encoder as cross_encoder_module
from babelens.inference.cross_encoder import CrossEncoder, Reranker
from babelens.inference.embedder import Embedder
from tests.support.tiny_cross_encoder import tiny_cross_encoder

TEXTS = ["thing 0", "a thing of many words, number 10", "ding 20", "sache, die 30 heißt", "thing 40"]
LANGUAGES = ["en", "en", "de", "de", "en"]


class Counted(list):
    def __init__(self, drawn: list[Image.Image]) -> None:
        super().__init__(drawn)
        self.reads = [0] * len(drawn)

    def __getitem__(self, index):
        if isinstance(index, int):
            self.reads[index] += 1
        return super().__getitem__(index)


@pytest.fixture(scope="module")
def parts():
    return tiny_cross_encoder(TEXTS, ["en", "de"])


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    return Counted([Image.fromarray(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)) for _ in range(7)])


def one_by_one(parts, texts, languages, **visual) -> np.ndarray:
    model, processor = parts
    number = len(next(iter(visual.values())))
    scores = np.empty((len(texts), number), np.float32)
    for row, (text, language) in enumerate(zip(texts, languages, strict=True)):
        for column in range(number):
            given = {name: [items[column]] for name, items in visual.items()}
            inputs = processor(text=text, language=language, return_tensors="pt", **given)
            with torch.no_grad():
                scores[row, column] = model(**inputs).scores.item()
    return scores


@pytest.mark.parametrize(("batch_size", "at_once"), [(4, 3), (64, 256)])
def test_all_pairs_are_scored_as_each_is_alone(parts, images, monkeypatch, batch_size, at_once):
    monkeypatch.setattr(cross_encoder_module, "_IMAGES_AT_ONCE", at_once)
    found = CrossEncoder(*parts, batch_size=batch_size).score_all(TEXTS, images, language=LANGUAGES)
    assert found.dtype == np.float32 and found.shape == (5, 7)
    assert images.reads == [1] * 7
    np.testing.assert_allclose(found, one_by_one(parts, TEXTS, LANGUAGES, images=list(images)), rtol=0, atol=1e-5)
    assert np.ptp(found, axis=0).min() > 0.01 and np.ptp(found, axis=1).min() > 0.01


def test_pairs_of_texts_and_images(parts, images):
    judge = CrossEncoder(*parts, batch_size=3)
    every = judge.score_all(TEXTS, images, language=LANGUAGES)
    found = judge.score(TEXTS, images[:5], language=LANGUAGES)
    np.testing.assert_allclose(found, every.diagonal(), rtol=0, atol=1e-5)
    pairs = np.array([[4, 6], [0, 0], [4, 6], [2, 1]])
    chosen = judge.score_pairs(TEXTS, images, pairs, language=LANGUAGES)
    np.testing.assert_allclose(chosen, every[pairs[:, 0], pairs[:, 1]], rtol=0, atol=1e-5)
    assert chosen[0] == chosen[2]


@pytest.mark.parametrize("visual", ["regions", "both"])
def test_regions_in_place_of_images_or_beside_them(images, visual):
    rng = np.random.default_rng(1)
    regions = [rng.standard_normal((count, 6)).astype(np.float32) for count in (1, 5, 3)]
    parts = tiny_cross_encoder(TEXTS, ["en", "de"], visual=visual)
    given = {"regions": regions} | ({"images": images[:3]} if visual == "both" else {})
    found = CrossEncoder(*parts, batch_size=4).score_all(TEXTS, language=LANGUAGES, **given)
    np.testing.assert_allclose(found, one_by_one(parts, TEXTS, LANGUAGES, **given), rtol=0, atol=1e-5)


TIE = 1e-6


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def brute_force_rank(cosines: np.ndarray, scores: np.ndarray, right: list[int], top_k: int) -> int:
    def stands_before(other: int, item: int) -> bool:
        listed = [int(np.sum(cosines >= cosines[each] - TIE)) <= top_k for each in (other, item)]
        if all(listed):
            return scores[other] >= scores[item]
        return listed[0] or (not listed[1] and cosines[other] >= cosines[item] - TIE)

    wrong = [item for item in range(len(cosines)) if item not in right]
    return min(1 + sum(stands_before(other, item) for other in wrong) for item in right)


@pytest.mark.parametrize("top_k", [1, 4, 12, 40])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("at_once", [1, 2**24])
def test_ranks_equal_brute_force(seed, top_k, at_once, monkeypatch):
    monkeypatch.setattr(ranking, "SCORES_AT_ONCE", at_once)
    n_texts, n_images = 9, 12
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((6, 3)).astype(np.float32)
    texts, images = (directions[rng.integers(0, 6, count)] for count in (n_texts, n_images))
    scores = rng.integers(0, 5, (n_texts, n_images)).astype(np.float32)
    right = [sorted(rng.choice(n_images, rng.integers(1, 4), replace=False).tolist()) for _ in range(n_texts)]
    judge = SimpleNamespace(score_pairs=lambda _, __, pairs, **options: scores[pairs[:, 0], pairs[:, 1]])
    queries = SimpleNamespace(texts=None, images=None, language="en")
    by_score = Reranker(judge, top_k).scores(queries, images, texts)
    found = ranks_by(*by_score, right, len(texts), len(images), protocol="standard", tie=COSINE_TIE)
    cosines = unit(texts) @ unit(images).T
    assert found.text_to_image.tolist() == [
        brute_force_rank(cosines[text], scores[text], right[text], top_k) for text in range(len(texts))
    ]
    captions = [[text for text in range(len(texts)) if image in right[text]] for image in range(len(images))]
    assert found.image_to_text.tolist() == [
        brute_force_rank(cosines[:, image], scores[:, image], captions[image], top_k) if captions[image] else 0
        for image in range(len(images))
    ]


def test_regions_of_the_corpus_in_place_of_its_images(clip_parts, caption_corpus):
    parts = tiny_cross_encoder(["thing 0"], ["en"], visual="regions")
    rng = np.random.default_rng(0)
    features = {f"thing-{n}": rng.standard_normal((3, 6)).astype(np.float32) for n in range(10)}
    reranker = Reranker(CrossEncoder(*parts), 100, regions=lambda found: [features[name] for name in found.image_ids])
    found = evaluate_retrieval(Embedder(*clip_parts), caption_corpus, "en", reranker=reranker)["en"]
    queries = retrieval_set(caption_corpus, "en")
    regions = [features[name] for name in queries.image_ids]
    scores = CrossEncoder(*parts).score_all(queries.texts, regions=regions, language="en")
    assert found == score_ranks(scores, queries.text_to_images).recalls()

"""Retrieve and rerank: between a dual encoder's ranks and a cross-encoder's, with ties, in both directions."""

import numpy as np
import pytest

from babelens.data.batching.views import retrieval_set
from babelens.evaluation import ranking
from babelens.evaluation.ranking import COSINE_TIE, RetrievalRanks, embedding_ranks, ranks_by, score_ranks
from babelens.evaluation.retrieval import evaluate_retrieval
from babelens.inference import cross_encoder as reranking
from babelens.inference.cross_encoder import CrossEncoder, Reranker, reranked_scores
from babelens.inference.embedder import Embedder
from tests.support.tiny_cross_encoder import tiny_cross_encoder

TIE = 1e-6


def from_matrix(scores: np.ndarray):
    asked = []

    def score(pairs: np.ndarray) -> np.ndarray:
        asked.append(pairs)
        return scores[pairs[:, 0], pairs[:, 1]]

    return score, asked


def random_case(seed: int, n_texts: int = 9, n_images: int = 12):
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((6, 3)).astype(np.float32)
    texts, images = (directions[rng.integers(0, 6, count)] for count in (n_texts, n_images))
    scores = rng.integers(0, 5, (n_texts, n_images)).astype(np.float32)
    right = [sorted(rng.choice(n_images, rng.integers(1, 4), replace=False).tolist()) for _ in range(n_texts)]
    return images, texts, right, scores


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


def reranked_ranks(images, texts, right, score, top_k, *, protocol="standard") -> RetrievalRanks:
    scores = reranked_scores(images, texts, score, top_k)
    return ranks_by(*scores, right, len(texts), len(images), protocol=protocol, tie=COSINE_TIE)


def assert_equal(found: RetrievalRanks, expected: RetrievalRanks) -> None:
    assert found.text_to_image.tolist() == expected.text_to_image.tolist()
    assert found.image_to_text.tolist() == expected.image_to_text.tolist()


@pytest.mark.parametrize("top_k", [1, 4, 12, 40])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("at_once", [1, 2**24])
def test_ranks_equal_brute_force(seed, top_k, at_once, monkeypatch):
    for module in (ranking, reranking):
        monkeypatch.setattr(module, "SCORES_AT_ONCE", at_once)
    images, texts, right, scores = random_case(seed)
    found = reranked_ranks(images, texts, right, from_matrix(scores)[0], top_k)
    cosines = unit(texts) @ unit(images).T
    assert found.text_to_image.tolist() == [
        brute_force_rank(cosines[text], scores[text], right[text], top_k) for text in range(len(texts))
    ]
    captions = [[text for text in range(len(texts)) if image in right[text]] for image in range(len(images))]
    assert found.image_to_text.tolist() == [
        brute_force_rank(cosines[:, image], scores[:, image], captions[image], top_k) if captions[image] else 0
        for image in range(len(images))
    ]


@pytest.mark.parametrize("protocol", ["standard", "mla"])
@pytest.mark.parametrize("seed", range(2))
def test_one_is_the_dual_encoder_and_all_the_cross_encoder(seed, protocol):
    images, texts, right, scores = random_case(seed)
    score, _ = from_matrix(scores)
    dual = embedding_ranks(images, texts, right, protocol=protocol)
    assert_equal(reranked_ranks(images, texts, right, score, 1, protocol=protocol), dual)
    full = score_ranks(scores, right, protocol=protocol)
    assert_equal(reranked_ranks(images, texts, right, score, max(scores.shape), protocol=protocol), full)


# ---- On a corpus, with real models ----


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

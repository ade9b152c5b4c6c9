import json
import math
from pathlib import Path

import numpy as np
import pytest

from babelens.evaluation import ranking
from babelens.evaluation.ranking import chance_recalls, embedding_ranks, score_ranks

FIXTURE = json.loads((Path(__file__).parents[1] / "fixtures" / "mla_metrics.json").read_text())


def reference_rank(scores: list[float], right: list[int]) -> int:
    """The place of the first right item, after wrong ones of the same score."""
    order = sorted(range(len(scores)), key=lambda item: (-scores[item], item in right))
    return 1 + next(place for place, item in enumerate(order) if item in right)


def reference_ranks(matrix: np.ndarray, text_to_images: list[list[int]]) -> tuple[list[int], list[int]]:
    text_ranks = [reference_rank(row.tolist(), right) for row, right in zip(matrix, text_to_images, strict=True)]
    image_ranks = []
    for image, column in enumerate(matrix.T):
        right = [text for text, images in enumerate(text_to_images) if image in images]
        image_ranks.append(reference_rank(column.tolist(), right) if right else 0)
    return text_ranks, image_ranks


def reference_group_ranks(matrix: np.ndarray, text_to_images: list[list[int]]) -> list[int]:
    """MLA's protocol: a wrong image is ranked before the right one when one of its wrong texts scores as high."""
    ranks = []
    for image, column in enumerate(matrix.T):
        best = max((column[text] for text, images in enumerate(text_to_images) if image in images), default=None)
        ahead = {
            other
            for text, images in enumerate(text_to_images)
            if best is not None and image not in images and column[text] >= best
            for other in images
        }
        ranks.append(0 if best is None else 1 + len(ahead))
    return ranks


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scores_at_once", [1, 40, 2**24])
def test_ranks_with_ties_and_ragged_captions_equal_brute_force(seed, scores_at_once, monkeypatch):
    monkeypatch.setattr(ranking, "SCORES_AT_ONCE", scores_at_once)
    n_texts, n_images = 23, 17
    random = np.random.default_rng(seed)
    signs = random.choice([-1.0, 1.0], size=(n_texts + n_images, 4)).astype(np.float32)
    text_to_images = [
        random.choice(n_images, size=random.integers(1, 4), replace=False).tolist() for _ in range(n_texts)
    ]
    images, texts = signs[:n_images], signs[n_images:]
    matrix = texts.astype(np.float64) @ images.T.astype(np.float64) / 4
    text_ranks, image_ranks = reference_ranks(matrix, text_to_images)
    group_ranks = reference_group_ranks(matrix, text_to_images)
    for ranks_of in (
        lambda **how: embedding_ranks(images, texts, text_to_images, **how),
        lambda **how: score_ranks(matrix, text_to_images, **how),
    ):
        ranks = ranks_of()
        assert ranks.text_to_image.tolist() == text_ranks
        assert ranks.image_to_text.tolist() == image_ranks
        by_group = ranks_of(protocol="mla")
        assert by_group.text_to_image.tolist() == text_ranks
        assert by_group.image_to_text.tolist() == group_ranks


@pytest.mark.parametrize("case", ["single", "multi"])
def test_mla_numbers(case):
    fixture = FIXTURE[case]
    captions_per_image = fixture.get("captions_per_image") or [1] * len(fixture["sim_text_by_image"][0])
    scores = np.array(fixture["sim_text_by_image"])
    right = [[image] for image, count in enumerate(captions_per_image) for _ in range(count)]
    ranks = score_ranks(scores, right, protocol="mla")
    recalls = ranks.recalls()
    for direction in ("t2i", "i2t"):
        for k in (1, 5, 10):
            assert recalls[f"{direction}_r{k}"] == pytest.approx(
                fixture[direction][f"R{k}"], rel=1e-6
            )  # some are float32
    assert (ranks.image_to_text - 1).tolist() == fixture["i2t"]["cols"]
    if case == "multi":
        assert recalls["mean_recall"] == pytest.approx(fixture["AR"], rel=1e-6)
        usual = score_ranks(scores, right)
        assert (usual.image_to_text - 1).tolist() == fixture["i2t_standard_ranks"]
        assert (ranks.image_to_text - 1).tolist() == fixture["i2t_official_group_ranks"]
        contrast = fixture["i2t_standard_for_contrast"]
        assert {f"R{k}": usual.recalls()[f"i2t_r{k}"] for k in (1, 5, 10)} == contrast


def test_chance_is_what_random_rankings_reach():
    random = np.random.default_rng(0)
    draws = [score_ranks(random.random((3, 20)), [[0], [1], [2]]).recalls() for _ in range(1000)]
    for name, chance in chance_recalls(20).items():
        values = [draw[name] for draw in draws]
        assert abs(np.mean(values) - chance) < 4 * np.std(values) / math.sqrt(len(values))
    assert chance_recalls(4) == {"t2i_r1": 25.0, "t2i_r5": 100.0, "t2i_r10": 100.0}


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"text_to_images": [[0], []]}, "text 1"),
        ({"text_to_images": [[0], [2]]}, "image 2"),
        ({"text_to_images": [[0]]}, "2 texts"),
        ({"protocol": "karpathy"}, "karpathy"),
        ({"text_embeddings": np.array([[1.0, 0.0], [np.nan, 1.0]])}, "row 1"),
        ({"image_embeddings": np.empty((0, 2))}, "at least one row"),
    ],
)
def test_what_cannot_be_ranked_is_refused(broken, message):
    arguments = {"image_embeddings": np.eye(2), "text_embeddings": np.eye(2), "text_to_images": [[0], [1]]}
    with pytest.raises(ValueError, match=message):
        embedding_ranks(**(arguments | broken))

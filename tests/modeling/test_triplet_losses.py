import json
from pathlib import Path

import pytest
import torch

from babelens.modeling.losses import top_violation_triplet_loss, triplet
from babelens.modeling.losses.smalr import (
    adversarial_language_loss,
    masked_reconstruction_loss,
    neighborhood_loss,
    reversal_schedule,
)

FIXTURE = json.loads((Path(__file__).parents[1] / "fixtures" / "losses_smalr.json").read_text())["smalr"]
INPUTS = {name: torch.tensor(FIXTURE["inputs"][name], dtype=torch.float64) for name in ("image", "sent_l1", "sent_l2")}
IMAGES = torch.arange(FIXTURE["inputs"]["batch"])
SENTENCES = IMAGES.repeat_interleave(FIXTURE["inputs"]["sample_size"])
KINDS = {"euclidean": "euclid_code", "cosine": "cosine_paper"}  # the authors' code's distance, and the paper's


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def reference(distances, positives, negatives, margin=0.05, top_n=10, furthest=False):
    values = []
    for a, row in enumerate(distances):
        right = [b for b in range(len(row)) if positives[a, b]]
        if furthest and right:
            right = [max(right, key=lambda b: row[b].item())]
        for p in right:
            losses = [margin + row[p] - row[n] for n in range(len(row)) if negatives[a, n]]
            values += sorted((max(loss, 0 * loss) for loss in losses), key=torch.Tensor.item)[::-1][:top_n]
    return sum(values) / len(values)


def distances_of(x, y, kind):
    if kind == "euclidean":
        return ((x[:, None] - y[None]).square().sum(-1) + 1e-4).sqrt()
    return triplet.pairwise_distances(x, y)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("language", ["l1", "l2"])
def test_fixture_of_the_multimodal_loss(kind, language):
    expected = FIXTURE[KINDS[kind]][language]
    distances = distances_of(INPUTS["image"], INPUTS[f"sent_{language}"], kind)
    positives = triplet.same_label(IMAGES, SENTENCES)
    image_anchors = top_violation_triplet_loss(distances, positives)
    sentence_anchors = top_violation_triplet_loss(distances.T, positives.T)
    assert sentence_anchors.item() == pytest.approx(expected["im_loss"], rel=1e-12)  # the code's names
    assert image_anchors.item() == pytest.approx(expected["sent_loss"], rel=1e-12)
    both = triplet.multimodal_triplet_loss(distances, positives)
    assert both.item() == pytest.approx(expected["eq3_only"], rel=1e-12)
    if kind == "cosine":
        within = neighborhood_loss(INPUTS[f"sent_{language}"], SENTENCES, torch.zeros_like(SENTENCES))
    else:
        sentences = INPUTS[f"sent_{language}"]
        same = triplet.same_label(SENTENCES, SENTENCES)
        within = top_violation_triplet_loss(
            distances_of(sentences, sentences, kind),
            same & ~torch.eye(len(same), dtype=torch.bool),
            negatives=~same,
            furthest_positive=True,
        )
    assert within.item() == pytest.approx(expected["mono_neighbourhood"], rel=1e-12)
    assert (both + 0.05 * within).item() == pytest.approx(expected["total"], rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_fixture_of_neighbors_across_languages(kind):
    distances = distances_of(INPUTS["sent_l1"], INPUTS["sent_l2"], kind)
    across = top_violation_triplet_loss(distances, triplet.same_label(SENTENCES, SENTENCES), furthest_positive=True)
    assert across.item() == pytest.approx(FIXTURE[KINDS[kind]]["cross_l1_l2"], rel=1e-12)


def test_fixture_of_masked_reconstruction():
    masked, predicted, sentences = (
        torch.tensor([FIXTURE["mask"][f"{name}_{side}"] for side in "ij"], dtype=torch.float64)
        for name in ("Sm", "Spred", "S")
    )
    loss = masked_reconstruction_loss(masked, predicted, sentences)
    assert loss.item() == pytest.approx(FIXTURE["mask"]["L_mask_mean"], rel=1e-12)
    for number, expected in enumerate(FIXTURE["mask"]["per_item"]):
        one = slice(number, number + 1)
        loss = masked_reconstruction_loss(masked[:, one], predicted[:, one], sentences[:, one])
        assert loss.item() == pytest.approx(expected, rel=1e-12)


def test_fixture_of_the_language_classifier():
    logits = torch.tensor(FIXTURE["adv"]["logits"], dtype=torch.float64)
    means = 3 * torch.eye(len(logits), dtype=torch.float64)  # normalised, each picks its own logits
    labels = torch.tensor(FIXTURE["adv"]["labels"])
    bias = torch.zeros(logits.shape[1], dtype=torch.float64)
    loss = adversarial_language_loss(means, logits.T, bias, labels, reversal=1.0)
    assert loss.item() == pytest.approx(FIXTURE["adv"]["ce_mean"], rel=1e-12)


def test_fixture_of_the_reversal_schedule():
    for progress, expected in FIXTURE["adv"]["grl_schedule"].items():
        assert reversal_schedule(float(progress)) == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("furthest", [False, True])
def test_ragged_triplets_follow_the_formula(furthest):
    """Anchors without a positive, with several, without a negative, with fewer than N."""
    distances = random(6, 8).requires_grad_()
    positives = triplet.same_label(torch.tensor([0, 1, 2, 3, 4, 0]), torch.tensor([0, 0, 0, 1, 2, 2, 9, 9]))
    negatives = ~positives
    negatives[1] = False
    negatives[2, 2:] = False
    options = {"margin": 0.4, "top_n": 3}
    found = top_violation_triplet_loss(
        distances, positives, negatives=negatives, furthest_positive=furthest, **options
    )
    expected = reference(distances, positives, negatives, furthest=furthest, **options)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(loss, distances)[0] for loss in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


def distance(x, y):
    return 1 - (x * y).sum() / ((x**2).sum().sqrt() * (y**2).sum().sqrt())


def test_neighbors_in_three_languages_are_those_of_the_formula():
    """Language 7 has one sentence for each image, so that it has neighbors in the others only."""
    image_ids = torch.tensor([0, 0, 1, 1, 2, 0, 2, 2, 1, 3, 0, 1, 2])
    language_ids = torch.tensor([2, 2, 2, 2, 2, 5, 5, 5, 5, 5, 7, 7, 7])
    sentences = random(len(image_ids), 4).requires_grad_()
    found = neighborhood_loss(sentences, image_ids, language_ids, margin=0.3, top_n=3)
    losses = []
    for first in (2, 5, 7):
        for second in (2, 5, 7):
            rows, columns = ([n for n in range(13) if language_ids[n] == one] for one in (first, second))
            block = [[distance(sentences[a], sentences[b]) for b in columns] for a in rows]
            same = triplet.same_label(image_ids[rows], image_ids[columns])
            others = torch.tensor([[a != b for b in columns] for a in rows])
            if (same & others).any():
                losses.append(reference(block, same & others, ~same, margin=0.3, top_n=3, furthest=True))
    assert len(losses) == 8
    expected = sum(losses) / len(losses)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(loss, sentences)[0] for loss in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-11)


def test_where_there_is_no_triplet_nothing_is_lost():
    sentences = random(3, 4).requires_grad_()
    same = torch.zeros(3, dtype=torch.long)
    losses = [
        triplet.multimodal_triplet_loss(
            triplet.pairwise_distances(sentences, sentences), triplet.same_label(same, same)
        ),
        neighborhood_loss(sentences, torch.arange(3), same),
    ]
    for loss in losses:
        assert loss.item() == 0
        assert torch.equal(torch.autograd.grad(loss, sentences)[0], torch.zeros_like(sentences))


def test_the_classifier_descends_and_the_embeddings_ascend():
    leaves = [random(5, 3).requires_grad_(), random(4, 3, seed=1).requires_grad_(), random(4, seed=2).requires_grad_()]
    labels = torch.tensor([0, 1, 2, 3, 1])
    unit = leaves[0] / leaves[0].square().sum(1, keepdim=True).sqrt()
    plain = -(unit @ leaves[1].T + leaves[2]).log_softmax(1)[torch.arange(5), labels].mean()
    expected = torch.autograd.grad(plain, leaves)
    found = torch.autograd.grad(adversarial_language_loss(*leaves, labels, reversal=0.3), leaves)
    for gradient, own, sign in zip(found, expected, (-0.3, 1, 1), strict=True):
        torch.testing.assert_close(gradient, sign * own, rtol=1e-12, atol=1e-12)


def test_autocast_and_half_precision_are_compared_in_float32():
    x, y = random(4, 3).bfloat16(), random(5, 3, seed=1).bfloat16()
    expected = triplet.pairwise_distances(x.float(), y.float())
    assert torch.equal(triplet.pairwise_distances(x, y), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(triplet.pairwise_distances(x.float(), y.float()), expected)


def hinge_reference(distances, positives, hardness, margin):
    """As in VSE++ and LIWE: a positive should score more than each negative, by the margin."""
    total, scores = 0.0, -distances
    for matrix, right in ((scores, positives), (scores.T, positives.T)):
        pairs = right.nonzero().tolist()
        for anchor, positive in pairs:
            violations = [
                max(0.0, margin + (matrix[anchor, n] - matrix[anchor, positive]).item())
                for n in range(matrix.shape[1])
                if not right[anchor, n]
            ]
            total += ((1 - hardness) * sum(violations) + hardness * max(violations, default=0.0)) / len(pairs)
    return total


@pytest.mark.parametrize("hardness", [0.0, 0.3, 1.0])
def test_the_hinge_loss_is_the_formula(hardness):
    labels = [0, 0, 1, 4, 4, 2, 9]
    generator = torch.Generator().manual_seed(1)
    distances = torch.rand(5, len(labels), dtype=torch.float64, generator=generator)
    positives = torch.arange(5)[:, None] == torch.tensor(labels)[None]
    found = triplet.annealed_hinge_loss(distances, positives, hardness=hardness, margin=0.2)
    assert found.item() == pytest.approx(hinge_reference(distances, positives, hardness, 0.2), rel=1e-12)

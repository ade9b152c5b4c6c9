"""LIWE's hinge loss against the authors' formula, written out pair by pair in float64."""

import pytest
import torch

from babelens.modeling.losses.triplet import annealed_hinge_loss, hinge_hardness


def reference(distances, positives, hardness, margin):
    """Of scores, as in VSE++ and LIWE: a positive should score more than each negative, by the margin."""
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
def test_it_is_the_formula(hardness):
    labels = [0, 0, 1, 4, 4, 2, 9]
    generator = torch.Generator().manual_seed(1)
    distances = torch.rand(5, len(labels), dtype=torch.float64, generator=generator)
    positives = torch.arange(5)[:, None] == torch.tensor(labels)[None]
    found = annealed_hinge_loss(distances, positives, hardness=hardness, margin=0.2)
    assert found.item() == pytest.approx(reference(distances, positives, hardness, 0.2), rel=1e-12)


def test_its_gradient_is_that_of_finite_differences():
    distances = torch.rand(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True)
    positives = torch.eye(4, dtype=torch.bool)
    assert torch.autograd.gradcheck(lambda d: annealed_hinge_loss(d, positives, hardness=0.3), (distances,))


def test_without_pairs_it_is_zero_with_a_gradient():
    distances = torch.rand(2, 3, requires_grad=True)
    loss = annealed_hinge_loss(distances, torch.zeros(2, 3, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0 and not distances.grad.any()


def test_the_schedule_ends_with_the_hardest_negative():
    assert hinge_hardness(0) == 0
    assert hinge_hardness(1, rate=0.75) == 0.25
    assert hinge_hardness(1000) == pytest.approx(1, abs=2e-4)

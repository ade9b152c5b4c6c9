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
@pytest.mark.parametrize("labels", [[0, 1, 2, 3, 4], [0, 0, 1, 4, 4, 2, 9]])
def test_it_is_the_formula(hardness, labels):
    generator = torch.Generator().manual_seed(1)
    distances = torch.rand(5, len(labels), dtype=torch.float64, generator=generator)
    positives = torch.arange(5)[:, None] == torch.tensor(labels)[None]
    found = annealed_hinge_loss(distances, positives, hardness=hardness, margin=0.2)
    assert found.item() == pytest.approx(reference(distances, positives, hardness, 0.2), rel=1e-12)


@pytest.mark.parametrize("hardness", [0.0, 0.3, 1.0])
def test_its_gradient_is_that_of_finite_differences(hardness):
    distances = torch.rand(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True)
    positives = torch.eye(4, dtype=torch.bool)
    assert torch.autograd.gradcheck(lambda d: annealed_hinge_loss(d, positives, hardness=hardness), (distances,))


def test_hardest_and_all_negatives_by_hand():
    distances = torch.tensor([[0.1, 0.2, 0.15]])
    positives = torch.tensor([[True, False, False]])
    # violations of the row: 0.1 and 0.15; the column of the positive has no negative
    torch.testing.assert_close(annealed_hinge_loss(distances, positives, hardness=0.0), torch.tensor(0.25))
    torch.testing.assert_close(annealed_hinge_loss(distances, positives, hardness=1.0), torch.tensor(0.15))


def test_without_pairs_it_is_zero_with_a_gradient():
    distances = torch.rand(2, 3, requires_grad=True)
    loss = annealed_hinge_loss(distances, torch.zeros(2, 3, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0 and not distances.grad.any()


def test_the_schedule_ends_with_the_hardest_negative():
    assert hinge_hardness(0) == 0
    assert hinge_hardness(1, rate=0.75) == 0.25
    assert hinge_hardness(1000) == pytest.approx(1, abs=2e-4)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"\[2, 3\] and \[3, 2\]"):
        annealed_hinge_loss(torch.rand(2, 3), torch.zeros(3, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"float32"):
        annealed_hinge_loss(torch.rand(2, 3), torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"hardness=1\.5"):
        annealed_hinge_loss(torch.rand(2, 2), torch.eye(2, dtype=torch.bool), hardness=1.5)

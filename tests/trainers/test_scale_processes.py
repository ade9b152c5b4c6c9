"""Several processes train as one that has all of the batch, whatever rows each of them has."""

from functools import cache

import numpy as np
import pytest
import torch

from babelens.modeling.losses import contrastive_loss
from babelens.trainers.processes import gather_labels, gather_rows, row_counts
from tests.support.processes import together
from tests.support.scaled_training import (
    PLAIN,
    gather_a_mask,
    loss_and_gradients,
    smalr_loss_and_gradients,
    train,
    whole_batch,
)

TEN_STEPS = {"max_steps": 10, "double": True, "max_grad_norm": 0.0, **PLAIN}
SAME_RATE = {"image_text": 0.1, "text_text": 0.1}  # two optimisers that do together what one would


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """Its losses and weights, by the number of batches that are accumulated."""

    @cache
    def run(accumulated):
        settings = TEN_STEPS | {"gradient_accumulation_steps": accumulated}
        return together(1, train, tmp_path_factory.mktemp("one"), shares=[8], **settings)[0]

    return run


@pytest.mark.parametrize(
    ("shares", "settings"),
    [
        ([4, 4], {}),
        ([4, 1, 3], {}),
        ([5, 3], {"embed_chunk_size": 2, "loss_tile_size": 3}),
        ([3, 5], {"task_learning_rates": SAME_RATE, "embed_chunk_size": 2, "gradient_accumulation_steps": 2}),
    ],
    ids=["halves", "three uneven", "uneven in chunks and tiles", "uneven with two optimisers, chunks, accumulation"],
)
def test_processes_train_as_one_does(tmp_path, one_process, shares, settings):
    """Ten steps in float64: the loss of each, and the weights after them. Images recur across processes."""
    accumulated = settings.get("gradient_accumulation_steps", 1)
    expected = one_process(accumulated)
    for rank in together(len(shares), train, tmp_path, shares=shares, **TEN_STEPS | settings):
        for task, losses in expected.losses.items():
            assert len(losses) == 10 * accumulated
            np.testing.assert_allclose(rank.losses[task], losses, rtol=1e-9, err_msg=task)
        for name, value in expected.weights.items():
            np.testing.assert_allclose(rank.weights[name], value, rtol=1e-8, atol=1e-10, err_msg=name)


def test_processes_train_with_the_sigmoid_as_one_does(tmp_path):
    """In chunks and tiles; the bias is learned, too."""
    settings = TEN_STEPS | {"keys": {"image_text_loss": "sigmoid", "logit_bias_init_value": -1}, "loss_tile_size": 3}
    (expected,) = together(1, train, tmp_path / "one", shares=[8], **settings)
    assert abs(expected.weights["similarity.bias"] + 1) > 1e-3
    for rank in together(2, train, tmp_path / "two", shares=[5, 3], embed_chunk_size=2, **settings):
        for task, losses in expected.losses.items():
            np.testing.assert_allclose(rank.losses[task], losses, rtol=1e-9, err_msg=task)
        for name, value in expected.weights.items():
            np.testing.assert_allclose(rank.weights[name], value, rtol=1e-8, atol=1e-10, err_msg=name)


def test_every_row_gets_the_gradient_of_the_whole_batch():
    """Sizes that differ, one process without a row; equal labels lie in different processes."""
    shares = [3, 0, 6]
    x, y, labels, temperature = whole_batch(9)
    loss = sum(contrastive_loss(x, y, temperature, positives=labels))
    loss.backward()
    found = together(3, loss_and_gradients, shares)
    for value, *_ in found:
        assert value == pytest.approx(loss.item(), rel=1e-12)
    # Sums over three processes, which averaging the weights' gradients undoes.
    for column, expected in ((1, x.grad), (2, y.grad)):
        rows = np.concatenate([rank[column] for rank in found])
        np.testing.assert_allclose(rows / 3, expected.numpy(), rtol=1e-10, atol=1e-14)
    assert np.mean([rank[3] for rank in found]) == pytest.approx(temperature.grad.item(), rel=1e-10)


def test_a_mask_of_positives_is_refused_where_it_cannot_be_true():
    with pytest.raises(RuntimeError, match=r"TypeError: positives of 2 processes must be integer labels \[K, n\]"):
        together(2, gather_a_mask)


def test_alone_there_is_nothing_to_gather():
    rows, mask = torch.randn(3, 2), torch.eye(3, dtype=torch.bool)
    counts = row_counts(3, rows.device)
    assert counts == [3]
    assert gather_rows(rows, counts) is rows
    assert torch.equal(gather_labels(mask, counts), mask)


def test_a_batch_may_have_more_texts_than_images():
    """SMALR's: texts and images are gathered each by their own numbers, and labels match across processes."""
    [(loss, expected)] = together(1, smalr_loss_and_gradients, [6])
    found = together(2, smalr_loss_and_gradients, [5, 1])
    for value, _ in found:
        assert value == pytest.approx(loss, rel=1e-12)
    for name, gradient in expected.items():
        parts = [gradients[name] for _, gradients in found if name in gradients]
        np.testing.assert_allclose(sum(parts) / 2, gradient, rtol=1e-9, atol=1e-13, err_msg=name)

"""Several processes train as one with the whole batch, whatever rows each of them has."""

import numpy as np
import pytest

from babelens.modeling.losses import contrastive_loss
from tests.support.parallel_methods import evaluate, train as train_method
from tests.support.parallel_rc3 import train as train_rc3_head
from tests.support.processes import together
from tests.support.scaled_training import PLAIN, loss_and_gradients, smalr_loss_and_gradients, train, whole_batch
from tests.support.tiny_training import shapes_corpus
from tests.support.versions import CHECKPOINTING

STEPS = {"max_steps": 5, "double": True, "max_grad_norm": 0.0, **PLAIN}
SAME_RATE = {"image_text": 0.1, "text_text": 0.1}  # two optimizers that do together what one would


@pytest.mark.parametrize(
    ("shares", "same", "settings"),
    [
        ([4, 1, 3], {}, {"loss_tile_size": 3}),
        ([3, 5], {"gradient_accumulation_steps": 2}, {"task_learning_rates": SAME_RATE, "embed_chunk_size": 2}),
    ],
    ids=["three uneven, in tiles", "two optimizers, chunks, accumulation"],
)
def test_processes_train_as_one_does(tmp_path, shares, same, settings):
    """In float64: the loss of each step, and the final weights. Images recur across processes."""
    expected = together(1, train, tmp_path / "one", shares=[8], **STEPS | same)[0]
    for rank in together(len(shares), train, tmp_path / "many", shares=shares, **STEPS | same | settings):
        for task, losses in expected.losses.items():
            assert len(losses) == 5 * same.get("gradient_accumulation_steps", 1)
            np.testing.assert_allclose(rank.losses[task], losses, rtol=1e-9, err_msg=task)
        for name, value in expected.weights.items():
            np.testing.assert_allclose(rank.weights[name], value, rtol=1e-8, atol=1e-10, err_msg=name)


def test_every_row_gets_the_gradient_of_the_whole_batch():
    """Sizes differ, one process has no row, and equal labels are in different processes."""
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


def test_a_batch_may_have_more_texts_than_images():
    """SMALR's: texts and images are gathered each by their own numbers, and labels match across processes."""
    [(loss, expected)] = together(1, smalr_loss_and_gradients, [6])
    found = together(2, smalr_loss_and_gradients, [5, 1])
    for value, _ in found:
        assert value == pytest.approx(loss, rel=1e-12)
    for name, gradient in expected.items():
        parts = [gradients[name] for _, gradients in found if name in gradients]
        np.testing.assert_allclose(sum(parts) / 2, gradient, rtol=1e-9, atol=1e-13, err_msg=name)


# ---- The other methods ----

HALVES = ({"per_device_train_batch_size": 8}, {"per_device_train_batch_size": 4})


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("mla", {"embed_chunk_size": 2, "text_text_objective": "nce", "mix_languages": True}),
        ("smalr", {"languages_per_batch": 2}),
    ],
)
def test_two_processes_learn_what_one_does(tmp_path, method, settings):
    """In float64: steps at a sharp temperature multiply the rounding errors of float32 a thousandfold."""
    one, two = HALVES
    ((expected, weights),) = together(1, train_method, method, tmp_path / "one", **settings | one)
    for losses, found in together(2, train_method, method, tmp_path / "two", **settings | two):
        np.testing.assert_allclose(losses, expected, rtol=1e-9)
        assert len(losses) == 6
        for name, value in weights.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=1e-10, err_msg=name)


def test_two_processes_measure_what_one_does(tmp_path):
    (expected,) = together(1, evaluate, "mla", tmp_path / "one", shapes_corpus())
    assert len(expected) > 2
    for found in together(2, evaluate, "mla", tmp_path / "two", shapes_corpus()):
        assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_masks_of_words_are_drawn_by_each_process(tmp_path):
    """The layers that fill in masked words are read by the loss, outside of the wrapped model."""
    (losses, first), (others, second) = together(2, train_method, "smalr", tmp_path, mask=True, **HALVES[1])
    assert losses == others and np.isfinite(losses).all()
    assert all(np.array_equal(second[name], value) for name, value in first.items())


@pytest.mark.slow
def test_heads_of_rc3_do_not_wait_for_the_decoder(tmp_path):
    settings = {CHECKPOINTING: True, f"{CHECKPOINTING}_kwargs": {"use_reentrant": False}}
    first, second = together(2, train_rc3_head, tmp_path / "two", "Rc3ForImageTextRetrieval", **settings)
    (alone,) = together(1, train_rc3_head, tmp_path / "one", "Rc3ForImageTextRetrieval")
    for name, value in alone.items():
        assert np.array_equal(first[name], second[name]), name
        np.testing.assert_allclose(first[name], value, rtol=0, atol=1e-5, err_msg=name)

"""MLA, SMALR and RC3 on two processes learn and measure what one does."""

import numpy as np
import pytest

from babelens.data.batching.mixture import TaskData, example_keys, seed_of_step
from tests.support.parallel_methods import DESCENT, evaluate, train
from tests.support.processes import together
from tests.support.tiny_rc3 import rc3_data
from tests.support.tiny_training import shapes_corpus

# Two processes with halves of the batches of one. R-XVtCL and ITM contrast the examples of one process alone: RC3 is
# compared with batches of that size whose gradients are accumulated, without XTCL (see test_rc3_trainer.py), in one
# pair of languages, which the batches of a step have in common.
HALVES = ({"per_device_train_batch_size": 8}, {"per_device_train_batch_size": 4})
ACCUMULATED = ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}, HALVES[1])
RC3 = {name: DESCENT[name] for name in ("optim", "max_steps", "lr_scheduler_type")}
RC3 |= {"learning_rate": 0.1, "model": {"dropout": 0.0, "xtcl_weight": 0.0}}
RC3 |= {"data": rc3_data() | {"strict": TaskData(shapes_corpus(), languages=["de", "en"])}}


@pytest.mark.parametrize(
    ("method", "batches", "settings"),
    [
        ("mla", HALVES, {}),
        ("mla", HALVES, {"embed_chunk_size": 2, "text_text_objective": "nce", "mix_languages": True}),
        ("mla", HALVES, {"trainable": "all"}),
        ("smalr", HALVES, {}),
        ("smalr", HALVES, {"languages_per_batch": 2}),
        ("rc3", ACCUMULATED, RC3),
    ],
    ids=["mla", "mla in chunks", "all of mla", "smalr", "smalr in two languages", "rc3"],
)
def test_two_processes_learn_what_one_does(tmp_path, method, batches, settings):
    """Sums of float32 in another order: losses differ by some of its 6e-8, which six steps of descent multiply."""
    one, two = batches
    ((expected, weights),) = together(1, train, method, tmp_path / "one", **settings | one)
    for losses, found in together(2, train, method, tmp_path / "two", **settings | two):
        np.testing.assert_allclose(losses, expected, rtol=2e-5)
        assert len(losses) == 6
        for name, value in weights.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("method", "data"), [("mla", shapes_corpus()), ("smalr", shapes_corpus()), ("rc3", rc3_data()["strict"])]
)
def test_two_processes_measure_what_one_does(tmp_path, method, data):
    (expected,) = together(1, evaluate, method, tmp_path / "one", data)
    assert len(expected) > 2
    for found in together(2, evaluate, method, tmp_path / "two", data):
        assert found == pytest.approx(expected, rel=1e-5)


def test_masks_of_words_are_drawn_by_each_process(tmp_path):
    """The layers that fill in masked words are read by the loss, outside of the wrapped model."""
    (losses, first), (others, second) = together(2, train, "smalr", tmp_path, mask=True, **HALVES[1])
    assert losses == others
    assert np.isfinite(losses).all()
    for name, value in first.items():
        assert np.array_equal(second[name], value), name


def test_what_is_drawn_for_a_step_is_the_same_in_all_processes():
    seeds = [[key.seed for key in example_keys("image_text", 1, [0] * 4, batch, 7)] for batch in range(6)]
    assert [seed_of_step(own, 1) for own in seeds] == [own[0] for own in seeds]
    assert [seed_of_step(own, 3) for own in seeds] == [seeds[0][0]] * 3 + [seeds[3][0]] * 3

"""Gradient caching gives the gradient of the whole batch."""

import pytest
import torch
from tiny_training import VISION, shapes_trainer, weights

from babelens.trainers.gradient_caching import RandomState, backward_in_chunks


@pytest.mark.parametrize("chunk", [1, 3, 8])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_chunks_train_as_the_whole_batch_does(tmp_path, chunk, accumulation):
    """Without dropout, whose random numbers depend on the shape of what it drops.

    By plain gradient descent: the gradient of a key's bias is zero but for rounding, which LAMB and Adam blow up to
    whole steps.
    """
    runs = []
    settings = {"max_steps": 4, "gradient_accumulation_steps": accumulation, "optim": "sgd", "learning_rate": 0.1}
    for size in (None, chunk):
        vision = {**VISION, "attention_dropout": 0.0}
        trainer = shapes_trainer(tmp_path, embed_chunk_size=size, vision=vision, dropout=0.0, **settings)
        trainer.train()
        runs.append(weights(trainer.model))
    for name, value in runs[0].items():
        torch.testing.assert_close(torch.tensor(runs[1][name]), torch.tensor(value), atol=2e-5, rtol=1e-4, msg=name)


def test_dropout_is_replayed():
    dropout = torch.nn.Dropout(0.5)
    x = torch.ones(100)
    state = RandomState(torch.device("cpu"))
    first = dropout(x)
    following = torch.rand(3)
    with state.replayed():
        assert torch.equal(dropout(x), first)
    torch.rand(1)
    with state.replayed():
        dropout(x)
        assert torch.equal(torch.rand(3), following)


def test_the_cached_gradient_is_that_of_the_replayed_pass(tmp_path):
    """With dropout, one chunk of the whole batch must equal the plain step, which draws the same numbers."""
    runs = []
    for size in (None, 8):
        trainer = shapes_trainer(tmp_path, max_steps=3)
        # A chunk as large as the batch takes the plain way; force the cached one.
        trainer.args.embed_chunk_size = size
        if size:
            trainer._backward = _always_cached(trainer)
        trainer.train()
        runs.append(weights(trainer.model))
    for name, value in runs[0].items():
        torch.testing.assert_close(torch.tensor(runs[1][name]), torch.tensor(value), atol=1e-6, rtol=1e-5, msg=name)


def _always_cached(trainer):
    def backward(model, task, batch, weight):
        positives = batch.pop("positives")
        return backward_in_chunks(
            model,
            batch,
            lambda output: trainer._objective(output, positives),
            chunk_size=positives.shape[-1],
            backward=lambda surrogate: trainer.accelerator.backward(weight * surrogate),
        )

    return backward

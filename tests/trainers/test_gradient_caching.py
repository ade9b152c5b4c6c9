from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch

from babelens.modeling.modeling_dual_encoder import DualEncoderOutput
from babelens.trainers.large_batches import backward_in_chunks
from tests.support.scaled_training import BATCH_NORM, PLAIN, make_double
from tests.support.tiny_training import shapes_trainer, weights

TWO_RATES = {"task_learning_rates": {"image_text": 0.1, "text_text": 0.01}}


@pytest.mark.parametrize(
    "settings",
    [{"loss_tile_size": 3}, {"gradient_accumulation_steps": 2, **TWO_RATES}, {"gradient_caching": False}],
    ids=["tiles", "two optimizers, accumulated", "graphs"],
)
def test_chunks_train_as_the_whole_batch_does(tmp_path, settings):
    """In float64, without dropout, whose random numbers depend on the shape."""
    runs = []
    for size in (None, 3):
        trainer = shapes_trainer(tmp_path, max_steps=4, embed_chunk_size=size, **PLAIN | settings)
        make_double(trainer)
        trainer.train()
        runs.append(weights(trainer.model))
    whole, chunked = runs
    for name, value in whole.items():
        np.testing.assert_allclose(chunked[name], value, rtol=1e-8, atol=1e-11, err_msg=name)


def _gradients(model):
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def _with_graphs(model, inputs, objective, *, chunks, autocast):
    columns = {name: value.tensor_split(chunks) for name, value in inputs.items()}
    outputs = []
    for number in range(chunks):
        with autocast():
            outputs.append(model(**{name: column[number] for name, column in columns.items()}, return_logits=False))
    whole = {
        name: torch.cat([output[name] for output in outputs]) if value.dim() else value
        for name, value in outputs[0].items()
    }
    objective(DualEncoderOutput(**whole)).backward()


@pytest.mark.parametrize(
    ("task", "changes", "autocast"),
    [
        ("text_text", {}, nullcontext),
        ("image_text", {"vision": BATCH_NORM}, nullcontext),
        ("text_text", {}, partial(torch.autocast, "cpu", dtype=torch.bfloat16)),
    ],
    ids=["dropout", "batch norm", "autocast"],
)
def test_the_second_pass_is_the_first(tmp_path, task, changes, autocast):
    """Dropout's numbers are the same, chunk for chunk, and so is all that batch norm learns."""
    found = []
    for run in (_with_graphs, partial(backward_in_chunks, backward=torch.Tensor.backward)):
        trainer = shapes_trainer(tmp_path, **changes)
        model, objective = trainer.model.train(), trainer.model.contrastive_objective
        batch = next(iter(trainer.get_train_dataloader()))[task]
        inputs = {name: value for name, value in batch.items() if name != "positives"}
        if autocast is nullcontext:
            model.double()
            inputs = {n: value.double() if value.is_floating_point() else value for n, value in inputs.items()}
        torch.manual_seed(5)
        run(model, inputs, objective, chunks=3, autocast=autocast)
        found.append((_gradients(model), dict(model.named_buffers()), torch.get_rng_state()))
    (expected, buffers, state), (gradients, cached_buffers, cached_state) = found
    assert gradients.keys() == expected.keys()
    # Under autocast the weights' float32 gradients add up chunk by chunk, in another order.
    rtol = 1e-10 if autocast is nullcontext else 1e-5
    scale = torch.nn.utils.get_total_norm(list(expected.values())).item()
    for name, value in expected.items():
        torch.testing.assert_close(gradients[name], value, rtol=rtol, atol=rtol * scale, msg=name)
    for name, value in buffers.items():
        assert torch.equal(cached_buffers[name], value), name
    assert torch.equal(cached_state, state)

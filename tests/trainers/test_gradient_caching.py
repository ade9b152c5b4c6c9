from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from babelens.modeling.losses import symmetric_contrastive_loss
from babelens.modeling.modeling_dual_encoder import DualEncoderOutput
from babelens.trainers.large_batches import backward_in_chunks
from tests.support.scaled_training import BATCH_NORM, PLAIN, make_double
from tests.support.tiny_training import shapes_trainer, weights

TWO_RATES = {"task_learning_rates": {"image_text": 0.1, "text_text": 0.01}}


@pytest.mark.parametrize(
    "settings",
    [{"loss_tile_size": 3}, {"gradient_accumulation_steps": 2, **TWO_RATES}],
    ids=["tiles", "two optimizers, accumulated"],
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


class Triplets(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values, input_ids, attention_mask, paired_input_ids, paired_attention_mask, **options):
        pairs = self.model(input_ids=input_ids, attention_mask=attention_mask, pixel_values=pixel_values, **options)
        paired = self.model(input_ids=paired_input_ids, attention_mask=paired_attention_mask)
        return DualEncoderOutput(
            text_embeds=pairs.text_embeds,
            image_embeds=pairs.image_embeds,
            paired_text_embeds=paired.text_embeds,
            temperature=pairs.temperature,
        )


def _three_losses(output):
    sides = (output.image_embeds, output.text_embeds, output.paired_text_embeds)
    return sum(symmetric_contrastive_loss(sides[a], sides[b], output.temperature) for a, b in ((0, 1), (0, 2), (1, 2)))


def _batch(trainer, task):
    batch = next(iter(trainer.get_train_dataloader()))[task]
    return {name: value for name, value in batch.items() if name != "positives"}


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


def _in_chunks(model, inputs, objective, **options):
    backward_in_chunks(model, inputs, objective, backward=lambda loss: loss.backward(), **options)


CASES = {
    "dropout": ({}, nullcontext),
    "batch norm": ({"vision": BATCH_NORM}, nullcontext),
    "autocast": ({}, partial(torch.autocast, "cpu", dtype=torch.bfloat16)),
}


@pytest.mark.parametrize(
    ("case", "task"), [("dropout", "text_text"), ("batch norm", "image_text"), ("autocast", "triplets")]
)
def test_the_second_pass_is_the_first(tmp_path, case, task):
    """Dropout's numbers are the same, chunk for chunk, and so is all that batch norm learns."""
    changes, autocast = CASES[case]
    found = []
    for run in (_with_graphs, _in_chunks):
        trainer = shapes_trainer(tmp_path, **changes)
        model, objective = trainer.model.train(), trainer.model.contrastive_objective
        inputs = _batch(trainer, task if task != "triplets" else "image_text")
        if task == "triplets":
            other = _batch(trainer, "text_text")
            inputs |= {name: other[name] for name in ("paired_input_ids", "paired_attention_mask")}
            model, objective = Triplets(model), _three_losses
        if case != "autocast":
            model.double()
            inputs = {n: value.double() if value.is_floating_point() else value for n, value in inputs.items()}
        torch.manual_seed(5)
        run(model, inputs, objective, chunks=3, autocast=autocast)
        found.append((_gradients(model), dict(model.named_buffers()), torch.get_rng_state()))
    (expected, buffers, state), (gradients, cached_buffers, cached_state) = found
    assert gradients.keys() == expected.keys()
    # Under autocast the weights' float32 gradients add up chunk by chunk, in another order.
    rtol = 1e-5 if case == "autocast" else 1e-10
    scale = torch.nn.utils.get_total_norm(list(expected.values())).item()
    for name, value in expected.items():
        torch.testing.assert_close(gradients[name], value, rtol=rtol, atol=rtol * scale, msg=name)
    for name, value in buffers.items():
        assert torch.equal(cached_buffers[name], value), name
    assert torch.equal(cached_state, state)

"""Gradient caching gives the gradient of the whole batch."""

from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from babelens.modeling.losses import symmetric_contrastive_loss
from babelens.modeling.modeling_dual_encoder import DualEncoderOutput
from babelens.trainers.gradient_caching import (
    RandomState,
    _take,
    backward_in_chunks,
    gradients_by_row,
    still_running_statistics,
)
from tests.support.scaled_training import BATCH_NORM, PLAIN, make_double
from tests.support.tiny_training import shapes_trainer, weights

TWO_RATES = {"task_learning_rates": {"image_text": 0.1, "text_text": 0.01}}


# ---- A whole training ----


@pytest.mark.parametrize(
    "settings",
    [{"loss_tile_size": 3}, {"gradient_accumulation_steps": 2, **TWO_RATES}],
    ids=["tiles", "two optimizers, accumulated"],
)
def test_chunks_train_as_the_whole_batch_does(tmp_path, settings):
    """In float64, without dropout, whose random numbers depend on the shape of what it drops."""
    runs = []
    for size in (None, 3):
        trainer = shapes_trainer(tmp_path, max_steps=4, embed_chunk_size=size, **PLAIN | settings)
        make_double(trainer)
        trainer.train()
        runs.append(weights(trainer.model))
    whole, chunked = runs
    for name, value in whole.items():
        np.testing.assert_allclose(chunked[name], value, rtol=1e-8, atol=1e-11, err_msg=name)


def test_chunks_add_little_to_the_error_of_bfloat16(tmp_path):
    """A step in bfloat16, in chunks and whole, compared with the same step in float64."""
    steps = []
    for settings in ({}, {"precision": "bfloat16"}, {"precision": "bfloat16", "embed_chunk_size": 3}):
        trainer = shapes_trainer(tmp_path, max_steps=1, max_grad_norm=0.0, **PLAIN | settings)
        if not settings:
            make_double(trainer)
        before = weights(trainer.model)
        trainer.train()
        after = weights(trainer.model)
        steps.append(np.concatenate([(after[name] - value).ravel() for name, value in before.items()]))
    exact, whole, chunked = steps
    assert 0 < np.linalg.norm(chunked - whole) < np.linalg.norm(whole - exact) / 4


# ---- One backward pass, against the same chunks with their graphs kept ----


class Triplets(nn.Module):
    """Images, texts and translations at once."""

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


def test_batch_norm_normalizes_a_chunk_by_itself(tmp_path):
    """What the documentation says of chunks' statistics: not the whole batch's, and counted once for each chunk."""
    trainer = shapes_trainer(tmp_path, vision=BATCH_NORM)
    model, inputs = trainer.model.train(), _batch(trainer, "image_text")
    with torch.no_grad(), still_running_statistics(model):
        whole = model(**inputs).image_embeds
        apart = model(**{name: value[:4] for name, value in inputs.items()}).image_embeds
    assert not torch.allclose(whole[:4], apart, atol=1e-3)
    _in_chunks(model, inputs, model.contrastive_objective, chunks=2, autocast=nullcontext)
    seen = {int(value) for name, value in model.named_buffers() if name.endswith("num_batches_tracked")}
    assert seen == {2}


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(3), nn.BatchNorm1d(3, momentum=None)])
def test_running_statistics_stand_still(norm):
    x = torch.randn(8, 3)
    model = nn.Sequential(norm, nn.BatchNorm1d(3).eval())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with still_running_statistics(model):
        first = norm(x)
        frozen = model[1](x)
    assert norm.track_running_stats
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    torch.testing.assert_close(frozen, x, rtol=1e-4, atol=1e-4)
    assert torch.equal(first, norm(x))
    assert norm.num_batches_tracked == 1


def test_word_embeddings_have_gradients_by_row():
    used, unused = nn.Embedding(5, 2), nn.Embedding(5, 2)
    model = nn.ModuleList([used, unused])
    rows = torch.tensor([1, 3])
    with gradients_by_row(model):
        assert not used.sparse  # nothing to add to yet
    used(rows).sum().backward()
    with gradients_by_row(model):
        assert used.sparse and not unused.sparse
        used(rows).sum().backward()
    assert not used.sparse and not used.weight.grad.is_sparse
    assert used.weight.grad.tolist() == [[0, 0], [2, 2], [0, 0], [2, 2], [0, 0]]
    assert unused.weight.grad is None


# ---- Random numbers of any device ----


class Counting:
    """A device's module whose random numbers are a count."""

    def __init__(self) -> None:
        self.drawn = {}

    def get_rng_state(self, device):
        return self.drawn.get(device, 0)

    def set_rng_state(self, state, device):
        self.drawn[device] = state

    def draw(self, device):
        self.drawn[device] = self.drawn.get(device, 0) + 1
        return self.drawn[device]


def test_any_device_that_torch_can_repeat_is_replayed(monkeypatch):
    """On the device that is used, together with the processor's own numbers."""
    module = Counting()
    monkeypatch.setattr(torch, "xpu", module)
    device, other = torch.device("xpu:1"), torch.device("xpu:0")
    module.draw(device)
    state = RandomState(device)
    drawn = module.draw(device), torch.rand(1)
    later = module.draw(device), module.draw(other)
    with state.replayed():
        assert (module.draw(device), torch.rand(1)) == drawn
    assert module.draw(device) == later[0] + 1 and module.draw(other) == later[1] + 1
    with pytest.raises(KeyError), state.replayed():
        raise KeyError
    assert module.draw(device) == later[0] + 2


def test_the_first_chunk_is_embedded_once(tmp_path):
    trainer = shapes_trainer(tmp_path)
    model, inputs, calls = trainer.model.train(), _batch(trainer, "image_text"), []
    model.register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    _in_chunks(model, inputs, model.contrastive_objective, chunks=3, autocast=nullcontext)
    assert calls == [True, False, False, True, True]


@pytest.mark.parametrize("flipped", [False, True], ids=["padded on the right", "padded on the left"])
def test_a_chunk_is_cut_after_its_longest_text(flipped):
    ids = torch.tensor([[3, 4, 0, 0, 0], [5, 6, 7, 8, 0], [9, 0, 0, 0, 0]])
    ids = ids.flip(1) if flipped else ids
    taken = _take({"input_ids": ids, "attention_mask": (ids > 0).long()}, torch.tensor([0, 2]))
    assert taken["input_ids"].sum(1).tolist() == [7, 9]
    assert taken["input_ids"].shape == taken["attention_mask"].shape == (2, 5 if flipped else 2)

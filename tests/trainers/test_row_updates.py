"""AdamW on rows of word tables: the steps of torch's AdamW, without reading the rows that no text has."""

import copy
import math

import pytest
import torch
from mla_training import weights
from torch import nn
from torch.testing import assert_close

from babelens.trainers.row_updates import RowAdamW, clip_by_norm, gradients_of_rows

ROWS, WIDTH, STEPS = 1500, 8, 12


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(ROWS, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, ids):
        return self.layer(self.table(ids)).square().mean()


def make(optimizer_class, **options):
    torch.manual_seed(0)
    words = Words()
    groups = [
        {"params": [words.table.weight], "weight_decay": 0.2},
        {"params": words.layer.parameters(), "weight_decay": 0.0},
    ]
    return words, optimizer_class(groups, **{"lr": 1e-2, "eps": 1e-6, "betas": (0.9, 0.98), **options})


def take_steps(words, optimizer, first=0, last=STEPS, max_norm=0.02):
    """Steps on random words among the first 700, a few of which come again."""
    by_row = isinstance(optimizer, RowAdamW)
    for step in range(first, last):
        ids = torch.randint(0, 700, (3, 5), generator=torch.Generator().manual_seed(step))
        with gradients_of_rows([words.table] if by_row else []):
            words(ids).backward()
        clip = clip_by_norm if by_row else nn.utils.clip_grad_norm_
        clip(words.parameters(), max_norm)
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {"fused": False, "foreach": False}])
def test_the_steps_are_those_of_adamw(options):
    sides = [make(made, **options) for made in (torch.optim.AdamW, RowAdamW)]
    for side in sides:
        take_steps(*side)
    (dense, optimizer), (by_row, own) = sides
    assert_close(weights(by_row), weights(dense))
    assert torch.equal(by_row.table.weight[700:], dense.table.weight[700:])  # they only decay
    for name in ("step", "exp_avg", "exp_avg_sq"):
        expected, found = optimizer.state[dense.table.weight][name], own.state[by_row.table.weight][name]
        assert found.shape == expected.shape and found.dtype == expected.dtype
        assert_close(found, expected)


@pytest.mark.parametrize("classes", [(torch.optim.AdamW, RowAdamW), (RowAdamW, torch.optim.AdamW)])
def test_each_continues_from_the_others_checkpoint(classes):
    whole = make(torch.optim.AdamW)
    take_steps(*whole)
    before, after = (make(made) for made in classes)
    take_steps(*before, last=5)
    after[0].load_state_dict(before[0].state_dict())
    after[1].load_state_dict(copy.deepcopy(before[1].state_dict()))
    take_steps(*after, first=5)
    assert_close(weights(after[0]), weights(whole[0]))


def test_a_loaded_optimizer_takes_the_same_steps_to_the_bit():
    unbroken, broken, resumed = (make(RowAdamW) for _ in range(3))
    take_steps(*unbroken)
    take_steps(*broken, last=5)
    for after, before in zip(resumed, broken, strict=True):
        after.load_state_dict(copy.deepcopy(before.state_dict()))
    take_steps(*resumed, first=5)
    assert all(torch.equal(value, weights(unbroken[0])[name]) for name, value in weights(resumed[0]).items())


def test_rows_without_a_gradient_are_left_out():
    words, optimizer = make(RowAdamW)
    take_steps(words, optimizer)
    assert 0 < optimizer._moved[words.table.weight].sum() <= 3 * 5 * STEPS


@pytest.mark.parametrize("max_norm", [1e-3, math.inf])
def test_sparse_gradients_are_clipped_with_the_others(max_norm):
    found = []
    for by_row in (False, True):
        words, _ = make(RowAdamW)
        with gradients_of_rows([words.table] if by_row else []):
            words(torch.tensor([[1, 2, 2], [3, 1, 700]])).backward()
        norm = (clip_by_norm if by_row else nn.utils.clip_grad_norm_)(words.parameters(), max_norm)
        found.append({"norm": norm, **{name: w.grad.to_dense() for name, w in words.named_parameters()}})
    assert_close(*found)


def test_tables_have_dense_gradients_again():
    table = nn.Embedding(3, 2)
    with pytest.raises(RuntimeError), gradients_of_rows([table]):
        assert table.sparse
        raise RuntimeError
    assert not table.sparse


# ---- In MLA's trainer ----


@pytest.mark.parametrize(
    "settings",
    [{}, {"max_grad_norm": 0.0}, {"embed_chunk_size": 2, "embed_chunks_kept": 2}, {"gradient_accumulation_steps": 2}],
)
def test_mla_is_trained_as_with_adamw(make_mla_trainer, monkeypatch, settings):
    trained = []
    for by_row in (True, False):
        trainer = make_mla_trainer(max_steps=6, seed=1, **settings)
        if not by_row:
            monkeypatch.setattr("babelens.trainers.mla.RowAdamW", torch.optim.AdamW)
            monkeypatch.setattr("babelens.trainers.mla.gradients_of_rows", lambda tables: gradients_of_rows([]))
        trainer.train()
        assert isinstance(trainer.optimizer.optimizer, RowAdamW) == by_row
        assert not any(getattr(module, "sparse", False) for module in trainer.model.modules())
        trained.append(weights(trainer.model))
    assert_close(*trained)


@pytest.mark.parametrize(
    ("settings", "model"),
    [
        ({"optim": "lamb"}, {}),
        ({"optim": "sgd"}, {}),
        ({"task_learning_rates": {"text_text": 1e-3}}, {}),
        ({}, {"train_embedding": False}),
    ],
)
def test_other_settings_keep_dense_gradients(make_mla_trainer, settings, model):
    trainer = make_mla_trainer(max_steps=1, model=model, **settings)
    trainer.train()
    assert trainer._tables_by_row == []

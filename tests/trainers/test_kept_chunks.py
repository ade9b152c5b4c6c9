"""Chunks stay in memory as long as enough of it is free, and training does not depend on how many do."""

from types import SimpleNamespace

import pytest
import torch
from tiny_training import shapes_trainer, weights
from torch import nn

from babelens.trainers import kept_chunks
from babelens.trainers.kept_chunks import WhileMemoryLasts, free_memory

CPU = torch.device("cpu")


def answers(monkeypatch, free, *, model=None):
    """What is said of chunk after chunk of one batch, if this much memory is free before each; and of which device."""
    free, said = iter(free), []
    monkeypatch.setattr(kept_chunks, "free_memory", lambda device: next(free))
    keeps = WhileMemoryLasts(model or nn.Identity(), CPU)
    while keeps(len(said)):
        said.append(True)
    return len(said)


@pytest.mark.parametrize(
    ("free", "kept"),
    [
        ([100, 90, 80, 70, 60, 50], 4),  # at 60, the next chunk could take 20 and leave 40
        ([100, 74, 0], 1),  # the next could leave 22
        ([100, 30], 1),  # the first always stays
        ([100, 100, 100, 49], 3),  # memory that was there already is used again
        ([100, 90, 85, 45], 3),  # another process takes memory
        ([None, None], 1),  # a device that does not tell
    ],
)
def test_half_of_the_free_memory_stays_free(monkeypatch, free, kept):
    assert answers(monkeypatch, free) == kept


def test_memory_for_gradients_is_left(monkeypatch):
    model = nn.Linear(5, 1, bias=False)  # 20 bytes
    assert answers(monkeypatch, [100, 90, 80, 70], model=model) == 2
    model.weight.grad = torch.zeros(1, 5)
    assert answers(monkeypatch, [100, 90, 80, 70, 60], model=model) == 4


def test_later_batches_leave_as_much_as_the_first(monkeypatch):
    """Although less is free when they begin: weights of an optimizer, and what the system's allocator holds back."""
    free = iter([100, 90, 80, 70, 60, 70, 65, 60, 55])
    monkeypatch.setattr(kept_chunks, "free_memory", lambda device: next(free))
    keeps = WhileMemoryLasts(nn.Identity(), CPU)
    assert [keeps(k) for k in range(5)] == [True, True, True, True, False]
    assert [keeps(k) for k in range(4)] == [True, True, True, False]


def test_training_does_not_depend_on_what_is_kept(tmp_path, monkeypatch):
    """To the bit, with dropout and batches of two tasks, whatever memory is free."""
    free = [iter([10**9, 9 * 10**8, 0] * 99), iter([10**9] * 999)]
    monkeypatch.setattr(kept_chunks, "free_memory", lambda device: next(free[0]))
    runs = []
    for settings in ({"embed_chunks_kept": 0}, {"embed_chunks_kept": 2}, {}, {}):
        trainer = shapes_trainer(tmp_path, max_steps=4, embed_chunk_size=2, **settings)
        passes = []
        trainer.model.register_forward_hook(lambda *_, passes=passes: passes.append(torch.is_grad_enabled()))
        trainer.train()
        if not settings:
            free.pop(0)
        runs.append((weights(trainer.model), len(passes)))
    for values, _ in runs[1:]:
        assert values.keys() == runs[0][0].keys()
        assert all((values[name] == value).all() for name, value in runs[0][0].items())
    none, two, some, all_but_one = (passes for _, passes in runs)
    assert none > two > all_but_one and none > some > all_but_one


def test_accelerators_count_what_torch_holds_unused(monkeypatch):
    device = torch.device("xpu:1")
    module = SimpleNamespace(
        mem_get_info={device: (50, 900)}.__getitem__,
        memory_reserved={device: 30}.__getitem__,
        memory_allocated={device: 20}.__getitem__,
    )
    monkeypatch.setattr(torch, "xpu", module)
    assert free_memory(device) == 60
    assert free_memory(torch.device("meta")) is None


@pytest.mark.parametrize(("available", "free"), [(100, 70), (60, 60)])
def test_a_mac_shares_its_memory(monkeypatch, available, free):
    module = SimpleNamespace(recommended_max_memory=lambda: 90, current_allocated_memory=lambda: 20)
    monkeypatch.setattr(torch, "mps", module)
    monkeypatch.setattr(kept_chunks, "available_memory", lambda: available)
    assert free_memory(torch.device("mps")) == free


@pytest.mark.parametrize("device_type", ["cuda", "xpu"])
def test_torch_has_the_functions_that_are_called(device_type):
    module = getattr(torch, device_type)
    assert all(hasattr(module, name) for name in ("mem_get_info", "memory_reserved", "memory_allocated"))


def test_the_processor_has_the_memory_of_the_machine(monkeypatch):
    monkeypatch.setattr(kept_chunks, "available_memory", lambda: 123)
    assert free_memory(CPU) == 123

"""LAMB against recorded steps, task optimisers against optimisers run by hand, learning rates of parts of a model."""

import copy
import json
from pathlib import Path

import pytest
import torch
from transformers import get_scheduler

from babelens.trainers.optimizers import Lamb, TaskOptimizer, parameter_groups

FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_lamb_takes_the_recorded_steps():
    recorded = json.loads((FIXTURES / "lamb.json").read_text())
    weight = torch.nn.Parameter(torch.tensor(recorded["w0"]))
    optimizer = Lamb(
        [weight],
        lr=recorded["lr"],
        betas=(recorded["b1"], recorded["b2"]),
        eps=recorded["eps"],
        weight_decay=recorded["weight_decay"],
    )
    for gradient, step in zip(recorded["grads"], recorded["steps"], strict=True):
        weight.grad = torch.tensor(gradient)
        optimizer.step()
        torch.testing.assert_close(weight.data, torch.tensor(step["w"]), atol=1e-6, rtol=0)


def test_lamb_moves_a_weight_of_zeros_by_the_plain_adam_step():
    weight = torch.nn.Parameter(torch.zeros(3))
    weight.grad = torch.tensor([1.0, -2.0, 4.0])
    Lamb([weight], lr=0.1).step()
    torch.testing.assert_close(weight.data, torch.tensor([-0.1, 0.1, -0.1]), atol=1e-5, rtol=0)


def test_lamb_does_not_depend_on_the_scale_of_the_gradient():
    """But for epsilon, beside which no entry here is small."""
    torch.manual_seed(0)
    gradient, start = torch.randn(4, 5), torch.randn(4, 5)
    gradient += gradient.sign() / 2
    moved = []
    for scale in (1.0, 1000.0):
        weight = torch.nn.Parameter(start.clone())
        weight.grad = gradient * scale
        Lamb([weight], lr=0.1).step()
        moved.append(weight.data)
    torch.testing.assert_close(*moved, atol=1e-5, rtol=1e-5)


def test_lamb_counts_the_steps_of_each_weight():
    """A weight that gets its first gradient late is corrected for its own age, not for the optimiser's."""
    early, late = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = Lamb([early, late], lr=0.1)
    early.grad = torch.ones(2)
    optimizer.step()
    early.grad, late.grad = None, torch.ones(2)
    optimizer.step()
    torch.testing.assert_close(early.data, late.data)


@pytest.mark.parametrize("bad", [{"lr": -1}, {"betas": (1.0, 0.9)}, {"eps": -1e-6}])
def test_lamb_refuses_impossible_settings(bad):
    with pytest.raises(ValueError, match="LAMB cannot use"):
        Lamb([torch.nn.Parameter(torch.ones(1))], **bad)


def _two_tasks(make, rates=(0.1, 0.01)):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = TaskOptimizer({task: make(model.parameters(), lr=lr) for task, lr in zip("ab", rates, strict=True)})
    return model, optimizer


def _losses(model, step):
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(step))
    return {"a": model(x).pow(2).mean(), "b": model(x).sin().mean()}


@pytest.mark.parametrize("make", [Lamb, torch.optim.AdamW], ids=["lamb", "adamw"])
def test_every_task_steps_with_its_own_state_and_rate(make):
    model, optimizer = _two_tasks(make)
    twin = copy.deepcopy(model)
    by_hand = {task: make(twin.parameters(), lr=lr) for task, lr in zip("ab", (0.1, 0.01), strict=True)}
    for step in range(4):
        for task, loss in _losses(model, step).items():
            with optimizer.gradients_of(task):
                loss.backward()
        optimizer.step()
        gradients = {
            task: torch.autograd.grad(loss, list(twin.parameters())) for task, loss in _losses(twin, step).items()
        }
        for task, single in by_hand.items():
            for weight, gradient in zip(twin.parameters(), gradients[task], strict=True):
                weight.grad = gradient.clone()
            single.step()
    for weight, expected in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(weight, expected)


def test_gradients_of_a_task_add_up_and_stay_apart():
    model, optimizer = _two_tasks(Lamb)
    for _ in range(2):
        with optimizer.gradients_of("a"):
            model.weight.sum().backward()
    with optimizer.gradients_of("b"):
        (3 * model.weight).sum().backward()
    assert model.weight.grad is None
    assert torch.equal(optimizer.gradients["a"][model.weight], torch.full((2, 3), 2.0))
    assert torch.equal(optimizer.gradients["b"][model.weight], torch.full((2, 3), 3.0))
    optimizer.zero_grad()
    assert not any(optimizer.gradients.values())


def test_gradients_are_clipped_task_by_task():
    model, optimizer = _two_tasks(Lamb)
    for task, factor in (("a", 100.0), ("b", 0.001)):
        with optimizer.gradients_of(task):
            (factor * model.weight).sum().backward()
    norm = optimizer.clip_gradients(1.0)
    assert norm.item() == pytest.approx(100 * 6**0.5)
    assert optimizer.gradients["a"][model.weight].norm().item() == pytest.approx(1.0, rel=1e-4)
    assert torch.equal(optimizer.gradients["b"][model.weight], torch.full((2, 3), 0.001))


def test_one_schedule_drives_every_task():
    _model, optimizer = _two_tasks(Lamb, rates=(1e-3, 1e-4))
    schedule = json.loads((FIXTURES / "schedule_mural.json").read_text())
    scheduler = get_scheduler("linear", optimizer, schedule["warmup"], schedule["total"])
    for step, rate in schedule["at"].items():
        factor = scheduler.lr_lambdas[0](int(step))
        assert [base * factor for base in scheduler.base_lrs] == pytest.approx([rate, rate / 10], rel=1e-9, abs=1e-18)
    optimizer.step()
    scheduler.step()
    assert [group["lr"] for single in optimizer.optimizers.values() for group in single.param_groups] == pytest.approx(
        [1e-7, 1e-8]
    )


def test_state_is_saved_and_loaded():
    model, optimizer = _two_tasks(Lamb)
    for task, loss in _losses(model, 0).items():
        with optimizer.gradients_of(task):
            loss.backward()
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    twin, other = _two_tasks(Lamb)
    twin.load_state_dict(model.state_dict())
    other.load_state_dict(saved)
    for m, o in ((model, optimizer), (twin, other)):
        for task, loss in _losses(m, 1).items():
            with o.gradients_of(task):
                loss.backward()
        o.step()
    assert torch.equal(model.weight, twin.weight)
    with pytest.raises(ValueError, match="checkpoint has tasks"):
        TaskOptimizer({"c": Lamb(model.parameters())}).load_state_dict(saved)


# ---- Learning rates of parts of a model ----


def two_layers() -> torch.nn.ModuleDict:
    return torch.nn.ModuleDict({"first": torch.nn.Linear(2, 3), "second": torch.nn.Linear(3, 1)})


def test_the_first_pattern_that_is_found_decides_the_rate():
    model = two_layers()
    decayed = ["first.weight", "second.weight"]
    mapping = {r"first\.w": 0.3, "first": 0.2}
    groups = parameter_groups(model, 0.1, mapping, weight_decay=0.01, decayed=decayed)
    found = {
        name: (group["lr"], group["weight_decay"])
        for name, parameter in model.named_parameters()
        for group in groups
        if any(parameter is member for member in group["params"])
    }
    assert found == {
        "first.weight": (0.3, 0.01),
        "first.bias": (0.2, 0.0),
        "second.weight": (0.1, 0.01),
        "second.bias": (0.1, 0.0),
    }
    assert sum(len(group["params"]) for group in groups) == 4
    assert [group["lr"] for group in groups[:2]] == [0.1, 0.1]


def test_frozen_parameters_are_in_no_group():
    model = two_layers()
    model["first"].requires_grad_(False)
    assert sum(len(group["params"]) for group in parameter_groups(model, 0.1)) == 2
    with pytest.raises(ValueError, match="no parameter is trained whose rate 'first' would decide"):
        parameter_groups(model, 0.1, {"first": 0.2})


@pytest.mark.parametrize(("pattern", "error"), [("third", "'third' would decide"), ("(", "no regular expression")])
def test_a_pattern_that_finds_nothing_is_refused(pattern, error):
    with pytest.raises(ValueError, match=error):
        parameter_groups(two_layers(), 0.1, {pattern: 0.2})

import copy
import json
from pathlib import Path

import pytest
import torch
from transformers import TrainerCallback, get_scheduler

from babelens.modeling.modeling_dual_encoder import MIN_TEMPERATURE
from babelens.trainers.optimizers import Lamb, TaskOptimizer, parameter_groups
from tests.support.tiny_training import shapes_trainer

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


def test_lamb_counts_the_steps_of_each_weight():
    """A weight that gets its first gradient late is corrected for its own age, not for the optimiser's."""
    early, late = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = Lamb([early, late], lr=0.1)
    early.grad = torch.ones(2)
    optimizer.step()
    early.grad, late.grad = None, torch.ones(2)
    optimizer.step()
    torch.testing.assert_close(early.data, late.data)


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


def test_gradients_are_clipped_task_by_task():
    model, optimizer = _two_tasks(Lamb)
    for task, factor in (("a", 100.0), ("b", 0.001)):
        with optimizer.gradients_of(task):
            (factor * model.weight).sum().backward()
    optimizer.max_norm = 1.0
    optimizer.clip_gradients()
    assert optimizer.grad_norm.item() == pytest.approx(100 * 6**0.5)
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


def test_frozen_parameters_are_in_no_group_and_no_pattern_is_for_nothing():
    model = two_layers()
    model["first"].requires_grad_(False)
    assert sum(len(group["params"]) for group in parameter_groups(model, 0.1)) == 2
    for pattern in ("first", "third"):
        with pytest.raises(ValueError, match=pattern):
            parameter_groups(model, 0.1, {pattern: 0.2})


LEAST = torch.tensor(MIN_TEMPERATURE).item()


class Watch(TrainerCallback):
    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_step_end(self, args, state, control, model=None, **kwargs) -> None:
        self.seen.append(model.temperature.item())


@pytest.mark.parametrize(
    "changes", [{"optim": "adamw_torch", "task_learning_rates": {"text_text": 1e-3}}, {"optim": "adamax"}], ids=str
)
def test_the_temperature_is_bounded_after_every_step(tmp_path, changes):
    settings = {"learning_rate": 2e-2, "lr_scheduler_type": "constant", "max_steps": 6} | changes
    trainer = shapes_trainer(tmp_path, **settings)
    with torch.no_grad():
        trainer.model.temperature.fill_(0.03)
    watch = Watch()
    trainer.add_callback(watch)
    # The gradient lowers the temperature in every step, for any loss.
    trainer.model.temperature.register_hook(lambda gradient: gradient.abs() + 0.1)
    trainer.train()
    assert len(watch.seen) == 6 and min(watch.seen) == watch.seen[-1] == LEAST

"""p_avg against the fixture's history, in one process and in two."""

import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from processes import together

from babelens.modeling.running_probability import RunningProbability

HISTORY = json.loads((Path(__file__).parents[1] / "fixtures" / "losses_rc3.json").read_text())["rc3_xtcl"][
    "p_avg_history"
]


def test_fixture_of_the_average_before_each_step():
    running = RunningProbability().double()
    expected = HISTORY["p_avg_before_step_k"]
    for step, loss in enumerate(HISTORY["L"]):
        if str(step) in expected:
            assert running.average.item() == pytest.approx(expected[str(step)], rel=1e-6)
        running.update(torch.tensor(-loss).exp())
    assert {"0", "1", "5", "100", "129"} == expected.keys()


def test_saved_state_goes_on_as_if_never_interrupted():
    unbroken, broken = RunningProbability(3), RunningProbability(3)
    for probability in (0.2, 0.4, 0.9, 0.5):
        unbroken.update(torch.tensor(probability))
        broken.update(torch.tensor(probability))
    resumed = RunningProbability(3)
    resumed.load_state_dict(broken.state_dict())
    assert resumed.average == unbroken.average == torch.tensor([0.4, 0.9, 0.5]).mean()
    for running in (unbroken, resumed):
        running.update(torch.tensor(0.1))
    assert resumed.average == unbroken.average == torch.tensor([0.1, 0.9, 0.5]).mean()


def test_accumulated_batches_are_one_step_and_see_one_average():
    running = RunningProbability(10)
    running.update(torch.tensor(0.5))
    seen = []
    for probability, ends_step in ((0.2, False), (0.4, True), (1.0, False)):
        seen.append(running.average.item())
        running.update(torch.tensor(probability), ends_step=ends_step)
    assert seen[0] == seen[1] == 0.5
    assert running.steps == 2
    assert running.average.item() == seen[2] == pytest.approx((0.5 + 0.3) / 2)


def averages_of_a_process() -> list[float]:
    dist.init_process_group("gloo")
    running, seen = RunningProbability(2), []
    for step in range(3):
        running.update(torch.tensor(0.1 * (step + dist.get_rank())))
        seen.append(running.average.item())
    return seen


def test_processes_agree_on_the_mean():
    first, second = together(2, averages_of_a_process)
    assert first == second == pytest.approx([0.05, 0.1, 0.2])

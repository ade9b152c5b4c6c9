"""p_avg against the fixture's history, in one process and in two."""

import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from babelens.modeling.modeling_rc3_encoder import RunningProbability
from tests.support.processes import together

FIXTURE = json.loads((Path(__file__).parents[1] / "fixtures" / "losses_rc3.json").read_text())["rc3_xtcl"]
HISTORY = FIXTURE["p_avg_history"]


def after(running: RunningProbability, *probabilities: float) -> float:
    for probability in probabilities:
        running.observe(torch.tensor(probability))
        running.end_step()
    return running.average.item()


def test_fixture_of_the_average_before_each_step():
    running = RunningProbability().double()
    expected = HISTORY["p_avg_before_step_k"]
    assert {"0", "1", "5", "100", "129"} == expected.keys()
    for step, loss in enumerate(HISTORY["L"]):
        if str(step) in expected:
            assert running.average.item() == pytest.approx(expected[str(step)], rel=1e-12)
        running.observe(torch.tensor(-loss, dtype=torch.float64).exp())
        running.end_step()


def test_saved_state_goes_on_as_if_never_interrupted():
    unbroken, broken, resumed = (RunningProbability(3) for _ in range(3))
    assert after(unbroken, 0.2, 0.4, 0.9, 0.5) == after(broken, 0.2, 0.4, 0.9, 0.5) == pytest.approx(1.8 / 3)
    resumed.load_state_dict(broken.state_dict())
    assert resumed.average == unbroken.average
    assert after(resumed, 0.1) == after(unbroken, 0.1) == pytest.approx(1.5 / 3)


def averages_of_a_process() -> list[float]:
    """Of a process whose second step has fewer anchors than the other's."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    running = RunningProbability(2)
    seen = [after(running, 0.1 + 0.2 * rank)]
    running.observe(torch.tensor(0.4 * rank), anchors=1 + 2 * rank)
    running.end_step()
    return [*seen, running.average.item(), after(running, 0.5)]


def test_processes_agree_on_the_mean_over_all_anchors():
    first, second = together(2, averages_of_a_process)
    assert first == second == pytest.approx([0.2, 0.25, 0.4])

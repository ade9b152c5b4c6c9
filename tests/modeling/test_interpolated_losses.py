import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from babelens.modeling.losses import interpolated_contrastive_loss, relevance_regularization
from babelens.modeling.losses.interpolated import distance_matrix, row_distances
from babelens.modeling.modeling_rc3_pretraining import RunningProbability
from tests.support.processes import together

FIXTURES = json.loads((Path(__file__).parents[1] / "fixtures" / "losses_rc3.json").read_text())
XTCL, RXVTCL = FIXTURES["rc3_xtcl"], FIXTURES["rc3_rxvtcl"]
NEGATIVES = ("v_hxi", "v_hxj", "hv_xi", "hv_xj", "hv_hxi", "hv_hxj")


def close(expected) -> object:
    return pytest.approx(expected, rel=1e-9, abs=1e-12)


def texts() -> tuple[torch.Tensor, torch.Tensor]:
    first, second = (torch.tensor(XTCL["inputs"][name], dtype=torch.float64) for name in ("x_li", "x_lj"))
    return first, second


def xtcl_distances(first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    others = ~torch.eye(len(first), dtype=torch.bool)
    distances = [distance_matrix(first, side)[others].view(len(first), -1) for side in (first, second)]
    return row_distances(first, second), torch.cat(distances, dim=1)


def stacked(space: str, name: str) -> torch.Tensor:
    return torch.tensor([entry[space][name] for entry in RXVTCL["inputs"]], dtype=torch.float64)


def rxvtcl_distances() -> tuple[torch.Tensor, torch.Tensor]:
    anchor = stacked("vtr", "v_xi")
    negatives = torch.stack([row_distances(anchor, stacked("vtr", name)) for name in NEGATIVES], dim=1)
    return row_distances(anchor, stacked("vtr", "v_xj")), negatives


@pytest.mark.parametrize("average", (0.0, 0.35, 1.0))
def test_fixture_of_xtcl(average):
    expected = XTCL[f"p_avg_{average}"]
    positive, negatives = xtcl_distances(*texts())
    contrast = interpolated_contrastive_loss(positive, negatives, average, slack=XTCL["inputs"]["zeta"])
    for row, anchor in enumerate(expected["per_anchor"]):
        assert positive[row].item() == close(anchor["d_pos"])
        assert negatives[row].tolist() == close(anchor["d_neg"])
        alone = interpolated_contrastive_loss(positive[row : row + 1], negatives[row : row + 1], average)
        assert alone.loss.item() == close(anchor["L_eq7"])
        assert alone.probability.item() == close(anchor["prob_eq4"])
    assert contrast.loss.item() == close(expected["L_XTCL_eq8"])
    assert contrast.probability.item() == close(expected["p_step"])


def test_fixture_of_rxvtcl():
    positive, negatives = rxvtcl_distances()
    for row, anchor in enumerate(RXVTCL["per_anchor"]):
        assert positive[row].item() == close(anchor["d_pos"])
        assert negatives[row].tolist() == close([anchor["d_neg"][name] for name in NEGATIVES])
        alone = interpolated_contrastive_loss(positive[row : row + 1], negatives[row : row + 1], 0.35)
        assert alone.loss.item() == close(anchor["L_eq9_with_minus_log"])
    assert interpolated_contrastive_loss(positive, negatives, 0.35).loss.item() == close(RXVTCL["mean_eq9"])


def test_fixture_of_the_relevance_regularization():
    positive, negatives = rxvtcl_distances()
    visio_textual = torch.cat([positive[:, None], negatives[:, :2]], dim=1)
    textual = torch.stack(
        [row_distances(stacked("tr", "xi"), stacked("tr", name)) for name in ("xj", "hxi", "hxj")], dim=1
    )
    for row, anchor in enumerate(RXVTCL["per_anchor"]):
        assert (-visio_textual[row]).softmax(0).tolist() == close(anchor["P_vtr"])
        assert (-textual[row]).softmax(0).tolist() == close(anchor["P_tr"])
        alone = relevance_regularization(visio_textual[row : row + 1], textual[row : row + 1])
        assert alone.item() == close(anchor["KL_Pvtr_Ptr"])
    contrast = interpolated_contrastive_loss(positive, negatives, 0.35).loss
    relevance = relevance_regularization(visio_textual, textual)
    assert (contrast + relevance).item() == close(RXVTCL["mean_eq12"])
    both = contrast + contrast + relevance
    assert both.item() == close(RXVTCL["L_RXVtCL_eq13_if_same_batch_used_for_both"])


@pytest.mark.parametrize("average", [0.35, 1.0])
def test_gradient_of_the_contrast_takes_lambda_as_given(average):
    """Equations 4 to 7 written out with representations on the line between anchor and negative, lambda held fixed."""
    first, second = texts()
    weights = [anchor["lam"] for anchor in XTCL[f"p_avg_{average}"]["per_anchor"]]

    def literal() -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for b, anchor in enumerate(first):
            others = [side[k] for side in (first, second) for k in range(len(first)) if k != b]
            drawn = [anchor + weight * (x - anchor) for weight, x in zip(weights[b], others, strict=True)]
            near = torch.exp(-((second[b] - anchor) ** 2).sum().sqrt())
            far = sum(torch.exp(-((x - anchor) ** 2).sum().sqrt()) for x in drawn)
            total -= torch.log(near / (near + far))
        return total / len(first)

    first.requires_grad_()
    second.requires_grad_()
    expected = torch.autograd.grad(literal(), (first, second))
    contrast = interpolated_contrastive_loss(*xtcl_distances(first, second), average)
    assert not contrast.probability.requires_grad
    found = torch.autograd.grad(contrast.loss, (first, second))
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-9)


def test_equal_representations_have_finite_loss_and_gradient():
    """A caption that is spelled alike in two languages, and a negative that is equal to the anchor."""
    first = torch.tensor([[1.0, 2.0], [1.0, 2.0], [0.0, 1.0]], requires_grad=True)
    second = torch.tensor([[1.0, 2.0], [1.0, 2.0], [3.0, 1.0]], requires_grad=True)
    contrast = interpolated_contrastive_loss(*xtcl_distances(first, second), 0.35)
    contrast.loss.backward()
    assert contrast.loss.isfinite() and contrast.probability.isfinite()
    assert first.grad.isfinite().all() and second.grad.isfinite().all()
    assert second.grad[2].any()


def test_anchor_without_negatives_costs_nothing():
    positive, negatives = xtcl_distances(*texts())
    positive.requires_grad_()
    contrast = interpolated_contrastive_loss(
        positive, negatives, 0.35, valid=torch.zeros_like(negatives, dtype=torch.bool)
    )
    contrast.loss.backward()
    assert (contrast.loss.item(), contrast.probability.item()) == (0, 1)
    assert not positive.grad.any()


def test_low_precision_is_computed_in_float32():
    first, second = (side.bfloat16() for side in texts())
    expected = interpolated_contrastive_loss(*xtcl_distances(first.float(), second.float()), 0.35)
    with torch.autocast("cpu", torch.bfloat16):
        contrast = interpolated_contrastive_loss(*xtcl_distances(first, second), 0.35)
    assert contrast.loss.dtype == torch.float32
    assert contrast == expected


HISTORY = XTCL["p_avg_history"]


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


def averages_of_a_process() -> list[float]:
    """The second step of one process has fewer anchors than the other's."""
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

import json
from pathlib import Path

import pytest
import torch

from babelens import CrossLingualConsistency, CrossLingualConsistencyConfig
from babelens.modeling.losses.triplet import multimodal_triplet_loss
from babelens.utils.errors import InputError
from tests.contracts import LoadingContract, PublishedModelContract

FIXTURE = json.loads((Path(__file__).parents[1] / "fixtures" / "losses_smalr.json").read_text())["smalr"]["clc"]
SCORES = torch.tensor(FIXTURE["scores"], dtype=torch.float64).movedim(-1, 0)  # [Nq, Nc, L] -> [L, Nq, Nc]


def make(*languages: str, **options) -> CrossLingualConsistency:
    return CrossLingualConsistency(
        CrossLingualConsistencyConfig(**({"languages": languages} if languages else {}), **options)
    )


def scores_with_noise(seed: int) -> tuple[torch.Tensor, list[list[int]]]:
    """Three languages know something of 40 queries and their one or two candidates among 60; the fourth does not."""
    generator = torch.Generator().manual_seed(seed)
    right = [[query] if query < 20 else [query, query + 20] for query in range(40)]
    scores = 0.2 * torch.randn(4, 40, 60, generator=generator)
    for query, candidates in enumerate(right):
        scores[:3, query, candidates] += 0.3
    scores[3] *= 3
    return 3 + scores, right


@pytest.fixture(scope="session")
def make_consistency():
    return lambda **options: (make("en", "DE", "zh_hant", "ja", **options), None)


class TestConsistency(PublishedModelContract):
    factory = "make_consistency"

    @pytest.fixture
    def batch(self):
        return scores_with_noise(0)[0]

    def answers(self, model, batch):
        assert model.config.languages == ["en", "de", "zh-Hant", "ja"]
        return {"scores": model(batch)}


class TestMean(LoadingContract):
    factory = "make_consistency"
    options = {"aggregation": "mean"}


def test_fixture_of_clc_a():
    joint = make(aggregation="mean").double()(SCORES)
    torch.testing.assert_close(joint, torch.tensor(FIXTURE["CLC_A"]).double(), rtol=0, atol=1e-7)


def test_fixture_of_clc_c_as_it_begins():
    model = make()
    assert sum(parameter.numel() for parameter in model.parameters()) == FIXTURE["n_params"] == 352
    expected = torch.tensor(FIXTURE["CLC_C_uniform_init"])
    torch.testing.assert_close(model(SCORES.float()), expected, rtol=0, atol=1e-6)


def test_fixture_of_clc_c_with_any_weights():
    model = make().double()
    with torch.no_grad():
        model.hidden.weight.copy_(torch.tensor(FIXTURE["random"]["W1"], dtype=torch.float64))
        model.output.weight.copy_(torch.tensor(FIXTURE["random"]["W2"], dtype=torch.float64))
    expected = torch.tensor(FIXTURE["random"]["relu"], dtype=torch.float64)
    torch.testing.assert_close(model(SCORES), expected, rtol=1e-12, atol=1e-12)


def test_the_first_and_last_loss_of_clc_c():
    scores, right = scores_with_noise(0)
    model = make("en", "de", "fr", "ja")
    losses = model.fit(scores, right)
    positives = torch.zeros(60, 40, dtype=torch.bool)
    for query, candidates in enumerate(right):
        positives[candidates, query] = True
    mean, joint = make("en", "de", "fr", "ja", aggregation="mean")(scores), model(scores).detach()
    expected = [multimodal_triplet_loss(-matrix.T, positives).item() for matrix in (mean, joint)]
    assert len(losses) == 31
    assert (losses[0], losses[-1]) == pytest.approx(tuple(expected), rel=1e-5)
    assert losses[-1] < losses[0]
    assert joint.std().item() == pytest.approx(mean.std().item(), rel=1e-5)


def test_rounding_does_not_turn_the_scores_around():
    """If all languages agree, only a factor can be learned, on which the loss does not depend."""
    generator = torch.Generator().manual_seed(0)
    scores = 3 + 0.02 * (torch.randn(1, 8, 8, generator=generator) + torch.eye(8)).expand(4, 8, 8)
    model = make("en", "de", "fr", "ja")
    losses = model.fit(scores, torch.arange(8)[:, None].tolist())
    assert losses == pytest.approx(losses[:1] * 31)
    torch.testing.assert_close(model(scores), scores.mean(0) * (model(scores) / scores.mean(0)).mean())
    assert model(scores).min() > 0 and model.dtype == torch.float32


def test_what_cannot_be_learned_from_is_refused():
    model = make("en", "de", "ja")
    with pytest.raises(InputError, match=r"query 2 has the right candidates \[5\]"):
        model.fit(torch.rand(3, 4, 5), [[0], [1], [5], [2]])
    with pytest.raises(InputError, match="joint scores are all the same"):
        model.fit(torch.ones(3, 4, 5), [[0]] * 4)
    with pytest.raises(ValueError, match="nothing to learn"):
        make("en", "de", "ja", aggregation="mean").fit(torch.rand(3, 4, 5), [[0]] * 4)


def test_scores_that_do_not_fit_are_refused():
    broken = torch.ones(3, 4, 5)
    broken[1, 2, 4] = torch.inf
    for scores, complaint in ((torch.ones(2, 4, 5), "n_queries"), (broken, r"scores\[1, 2, 4\]")):
        with pytest.raises(InputError, match=complaint):
            make("en", "de", "ja")(scores)

"""Cross-lingual consistency: the fixtures, saving and loading, what CLC-C learns, refusals."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from babelens import CrossLingualConsistency, CrossLingualConsistencyConfig
from babelens.modeling.losses.triplet import multimodal_triplet_loss
from babelens.utils.errors import InputError

FIXTURE = json.loads((Path(__file__).parents[1] / "fixtures" / "losses_smalr.json").read_text())["smalr"]["clc"]
SCORES = torch.tensor(FIXTURE["scores"], dtype=torch.float64).movedim(-1, 0)  # [Nq, Nc, L] -> [L, Nq, Nc]

WITHOUT_PACKAGE = """
import sys
from safetensors.torch import load_file, save_file
from transformers import AutoModel

model = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True)
model.save_pretrained(sys.argv[2])
save_file({"joint": model(load_file(sys.argv[3])["scores"]).detach()}, sys.argv[4])
"""


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


@pytest.mark.parametrize("aggregation", ["mean", "mlp"])
def test_saved_and_loaded_to_the_same_bits(aggregation, tmp_path):
    scores, right = scores_with_noise(0)
    model = make("en", "DE", "zh_hant", "ja", aggregation=aggregation)
    if aggregation == "mlp":
        model.fit(scores, right)
    model.save_pretrained(tmp_path)
    again, info = CrossLingualConsistency.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert again.config.languages == ["en", "de", "zh-Hant", "ja"]
    assert torch.equal(again(scores), model(scores))
    assert torch.equal(AutoModel.from_pretrained(tmp_path, trust_remote_code=True)(scores), model(scores))


def test_loaded_without_the_package_to_the_same_bits(run_without_babelens, tmp_path):
    scores, right = scores_with_noise(0)
    model = make("en", "de", "fr", "ja")
    model.fit(scores, right)
    model.save_pretrained(tmp_path / "model")
    save_file({"scores": scores}, tmp_path / "scores")
    paths = [tmp_path / name for name in ("model", "again", "scores", "joint")]
    run_without_babelens(WITHOUT_PACKAGE, *paths)
    assert torch.equal(load_file(tmp_path / "joint")["joint"], model(scores))
    files = [{path.name for path in folder.iterdir() if path.is_file()} for folder in paths[:2]]
    assert files[0] == files[1] and "modeling_consistency.py" in files[0]


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

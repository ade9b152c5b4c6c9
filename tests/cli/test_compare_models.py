"""`babelens compare A B C --data`: any dual encoders on the same captions, with intervals of their differences."""

import csv
import io
import json

import pytest
from tiny_dual_encoders import KINDS, save_remote
from tiny_native import saved
from tiny_training import write_shapes

from babelens.configuration.errors import ComparisonError
from babelens.data.corpus.loading import load_captions
from babelens.evaluation import compare
from babelens.evaluation.comparison import RunResults
from babelens.evaluation.retrieval import evaluate_retrieval
from babelens.inference.embedder import Embedder


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    kinds = {name: saved(KINDS[name](), folder / name) for name in ("clip", "siglip2", "metaclip_2", "mural")}
    return {name: str(path) for name, path in kinds.items()} | {"toy": str(save_remote(folder / "toy"))}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_shapes(tmp_path_factory.mktemp("shapes"))


def test_models_of_every_kind_on_the_same_captions(run, models, photos):
    options = ("--data", photos, "--trust-remote-code", "--metrics", "t2i_r5,mean_recall", "--format")
    scores = json.loads(run("compare", *models.values(), *options, "json").stdout)
    assert list(dict.fromkeys(score["run"] for score in scores)) == list(models)
    assert list(dict.fromkeys(score["language"] for score in scores)) == ["de", "en", "fr", "mean"]
    rows, corpus = {}, load_captions(photos)
    for name in ("clip", "mural"):
        ranks = {}
        found = evaluate_retrieval(Embedder.from_pretrained(models[name]), corpus, ["en", "de", "fr"], ranks=ranks)
        by_key = {("captions", language): each for language, each in ranks.items()}
        rows[name] = [RunResults(name, {("captions", language): found[language] for language in found}, by_key)]
    expected = {(score.language, score.row): score for score in compare(rows, ["mean_recall"])}
    for score in scores:
        if score["metric"] == "mean_recall" and (score["language"], score["run"]) in expected:
            other = expected[score["language"], score["run"]]
            assert score["mean"] == pytest.approx(other.mean)
            if score["run"] == "mural":
                assert score["difference_low"] == pytest.approx(other.difference.low)
                assert score["difference_high"] == pytest.approx(other.difference.high)
    assert len(list(csv.reader(io.StringIO(run("compare", *models.values(), *options, "csv").stdout)))) == 41


def test_tables_show_the_intervals_and_what_is_noise(run, models, photos):
    given = ("compare", models["clip"], models["mural"], "--data", photos, "--languages", "de,fr")
    shown = run(*given).stdout
    assert "captions, in %" in shown and "mean_recall" in shown and "t2i_r5" not in shown
    assert "n.s." in shown and "n.s.: no more than chance explains, p ≥ 0.05." in shown
    assert "the difference to clip with its interval of 95 %, by 10,000 paired bootstraps over images" in shown
    (line,) = [line for line in run(*given, "--format", "md").stdout.splitlines() if line.startswith("| mean | mural")]
    assert line.count("[") == 3
    (line,) = [
        line
        for line in run(*given, "--only-captioned", "--format", "md").stdout.splitlines()
        if line.startswith("| mean | mural")
    ]
    assert line.count("[") == 3


def test_what_cannot_be_compared(run, models, photos, tmp_path):
    clip, mural = models["clip"], models["mural"]
    refused = run("compare", clip, clip, "--data", photos, code=1)
    assert isinstance(refused.exception, ComparisonError) and "is named twice" in str(refused.exception)
    assert "has no results" in str(run("compare", clip, code=1).exception)
    for arguments, message in {
        (clip, "missing-folder", "--data", photos): "missing-folder",
        (clip, mural, "--only-captioned"): "give --data",
        (clip, mural, "--languages", "de"): "give --data",
        (clip, tmp_path / "nothing"): "To compare models on captioned images, give --data",
        (clip, mural, "--data", photos, "--languages", ","): "names no language",
        (clip, photos / "metadata.jsonl", "--data", photos): "is a file: with --data, RUNS are models",
    }.items():
        assert message in " ".join(run("compare", *arguments, code=2).output.replace("│", " ").split()), arguments


def test_a_language_that_a_model_has_not_learned(run, models, make_mla, tmp_path):
    """The error names the model; in the other languages an MLA is compared."""
    mla, photos = saved(make_mla(), tmp_path / "mla"), tmp_path / "photos"
    photos.mkdir()
    metadata = write_shapes(photos) / "metadata.jsonl"
    metadata.write_text(metadata.read_text().replace('"fr"', '"is"'))
    given = ("compare", models["clip"], mla, "--data", photos)
    shown = " ".join(run(*given, code=2).output.replace("│", " ").split())
    assert f"{mla}: this model has not learned 'is'" in shown and "--languages" in shown
    assert "n.s." in run(*given, "--languages", "en,de").stdout

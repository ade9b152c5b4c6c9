"""`babelens report`, and the reports that `train` and `evaluate` write."""

import json

import pytest
import yaml
from tiny_recipes import mural
from tiny_training import write_shapes

from babelens.configuration.errors import ComparisonError


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    return write_shapes(tmp_path_factory.mktemp("shapes"))


def write(folder, recipe):
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump(recipe | {"validation": {"source": str(folder)}}))
    return file


def test_train_writes_the_report_and_its_facts(run, shapes, tmp_path):
    recipe = write(shapes, mural(shapes))
    run("train", recipe, "--output", tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    facts = json.loads((tmp_path / "run" / "evaluation" / "facts.json").read_text())
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert f"| Parameters | {facts['card']['parameters']:,} |" in card
    assert (
        f"{facts['card']['parameters']:,}" in page
        and facts["card"]["run"]["steps"] == facts["logs"][0]["log"][-1]["step"]
    )
    assert 0.1 < facts["memory"]["process"] < 100 and [log["stage"] for log in facts["logs"]] == [""]
    assert f"License of the weights: <b>{facts['card']['license']}</b>" in page
    assert page.count("<img ") == 3 * (2 * 6 + 1)  # languages; two texts with six images, and an image with texts
    assert "in English: a " in page
    run("report", tmp_path / "run", "--output", tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == page


def test_evaluate_writes_it_beside_its_results(run, model, shapes, tmp_path):
    run("evaluate", model, "--data", shapes, "--languages", "en,fr", "--output", tmp_path / "results.json")
    names = {"results.json", "results.ranks.npz", "results.gallery.json", "results.report.html"}
    assert {path.name for path in tmp_path.iterdir()} == names
    page = (tmp_path / "results.report.html").read_text(encoding="utf-8")
    results = json.loads((tmp_path / "results.json").read_text())
    assert f">{results['fr']['mean_recall']:.1f}</span>" in page and page.count("<img ") == 2 * (2 * 6 + 1)
    shown = run("report", tmp_path / "results.json").stdout
    assert shown.split() == ["Report:", str(tmp_path / "results.report.html")]
    for given in (["--no-report", "--output", tmp_path / "other.json"], []):
        run("evaluate", model, "--data", shapes, "--languages", "en", *given)
    assert {path.name for path in tmp_path.iterdir()} == {*names, "other.json", "other.ranks.npz"}


def test_what_is_no_run_is_refused(run, tmp_path):
    assert isinstance(run("report", tmp_path, code=1).exception, ComparisonError)
    assert "does not exist" in run("report", tmp_path / "nothing", code=2).output

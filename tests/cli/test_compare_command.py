import json

import pytest
import yaml

from tests.support.results import numbers_of
from tests.support.tiny_recipes import liwe
from tests.support.tiny_training import write_shapes


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = write_shapes(tmp_path_factory.mktemp("shapes"))
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump(liwe(folder) | {"validation": {"source": str(folder)}}))
    return file


@pytest.fixture(scope="module")
def seeds(run, recipe, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "seeds"
    for seed in (1, 2):
        run("train", recipe, "--set", f"training.seed={seed}", "--output", output / f"seed-{seed}")
    return output


def test_comparing_seeds_with_a_run_and_with_a_file(run, seeds, recipe, tmp_path):
    file = tmp_path / "evaluated.json"
    run("evaluate", "captions", seeds / "seed-1", "--data", recipe.parent, "--output", file)
    scores = json.loads(run("compare", seeds, seeds / "seed-2", file, "--format", "json").stdout)
    assert list(dict.fromkeys(score["run"] for score in scores)) == ["seeds", "seed-2", "evaluated"]
    assert list(dict.fromkeys(score["language"] for score in scores)) == ["de", "en", "fr", "mean"]
    found = {(score["language"], score["run"], score["metric"]): score for score in scores}
    reports = [numbers_of(seeds / f"seed-{seed}") for seed in (1, 2)]
    for language in ("de", "en", "fr"):
        mean = found[language, "seeds", "mean_recall"]["mean"]
        assert mean == pytest.approx(sum(report[language]["mean_recall"] for report in reports) / 2)
        assert found[language, "evaluated", "t2i_r1"]["mean"] == reports[0][language]["t2i_r1"]
        difference = found[language, "seed-2", "mean_recall"]["difference"]
        assert difference == pytest.approx(reports[1][language]["mean_recall"] - mean)


def test_the_table_of_the_terminal(run, seeds, recipe):
    shown = run("compare", seeds, seeds / "seed-1", "--metrics", "mean_recall").stdout
    assert (
        f"{recipe.parent.name}, in %" in shown
        and "Mean ± standard deviation over 1 or 2 seeds." in shown
        and "Difference from seeds" in shown
    )

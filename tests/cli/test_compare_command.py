import json

import pytest
import yaml

from tests.support.results import numbers_of
from tests.support.tiny_recipes import liwe
from tests.support.tiny_training import write_shapes


def test_comparing_seeds_with_a_run_and_with_a_file(run, tmp_path):
    shapes, seeds, recipe = tmp_path / "shapes", tmp_path / "seeds", tmp_path / "recipe.yaml"
    shapes.mkdir()
    write_shapes(shapes)
    recipe.write_text(yaml.safe_dump(liwe(shapes) | {"validation": {"source": str(shapes)}}))
    for seed in (1, 2):
        run("train", recipe, "--set", f"training.seed={seed}", "--output", seeds / f"seed-{seed}")
    file = tmp_path / "evaluated.json"
    run("evaluate", "captions", seeds / "seed-1", "--data", shapes, "--output", file)
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
    shown = run("compare", seeds, seeds / "seed-1", "--metrics", "mean_recall").stdout
    for words in ("shapes, in %", "Mean ± standard deviation over 1 or 2 seeds.", "Difference from seeds"):
        assert words in shown
    (tmp_path / "empty").mkdir()
    assert "no results" in str(run("compare", seeds, tmp_path / "empty", code=1).exception)

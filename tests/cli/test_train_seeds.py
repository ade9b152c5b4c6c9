"""`babelens train --seeds` and `babelens compare`, from a recipe to tables."""

import csv
import io
import json
import shutil

import pytest
import yaml
from tiny_recipes import liwe
from tiny_training import write_shapes
from typer.testing import CliRunner

from babelens.cli.main import app
from babelens.configuration.errors import ChangedRunError, ComparisonError


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = write_shapes(tmp_path_factory.mktemp("shapes"))
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump(liwe(folder) | {"validation": {"source": str(folder)}}))
    return file


def run(*arguments, **options):
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"}, catch_exceptions=False, **options)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def seeds(recipe, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "seeds"
    return output, run("train", recipe, "--seeds", "1,2", "--output", output)


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


def test_a_run_for_each_seed_and_their_means(seeds, recipe, tmp_path):
    output, shown = seeds
    assert sorted(path.name for path in output.iterdir()) == ["seed-1", "seed-2"]
    assert weights(output / "seed-1") != weights(output / "seed-2")
    assert "Mean ± standard deviation over 2 seeds." in shown and " ± " in shown
    run("train", recipe, "--set", "training.seed=2", "--output", tmp_path / "alone")
    assert weights(tmp_path / "alone") == weights(output / "seed-2")


def test_finished_seeds_are_skipped_and_interrupted_ones_continued(seeds, recipe, tmp_path, caplog):
    output = shutil.copytree(seeds[0], tmp_path / "seeds")
    before = weights(output / "seed-2")
    (output / "seed-2" / "README.md").unlink()
    marked = (output / "seed-1" / "README.md").stat().st_mtime_ns
    caplog.set_level("INFO", logger="babelens")
    scores = json.loads(run("train", recipe, "--seeds", "1,2", "--output", output, "--json"))
    assert "seed 1 (1 of 2): finished already" in caplog.text and "seed 2 (2 of 2): trained in" in caplog.text
    assert (output / "seed-1" / "README.md").stat().st_mtime_ns == marked
    assert weights(output / "seed-2") == before and (output / "seed-2" / "README.md").is_file()
    assert {score["seeds"] for score in scores} == {2}


def test_a_finished_seed_of_another_recipe_is_refused(seeds, recipe):
    command = ["train", str(recipe), "--seeds", "1", "--output", str(seeds[0]), "--set", "training.max_steps=3"]
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, ChangedRunError) and "training.max_steps was" in str(done.exception)


def test_seeds_that_are_none(recipe, seeds, tmp_path):
    for given in ("", "1,1", "one", "-1", "1.5", str(2**32)):
        done = CliRunner().invoke(app, ["train", str(recipe), "--seeds", given, "--output", str(tmp_path / "x")])
        assert done.exit_code == 2 and not (tmp_path / "x").exists()
    done = CliRunner().invoke(app, ["train", str(recipe), "--seeds", "1", "--set", "training.seed=2"])
    assert done.exit_code == 2
    done = CliRunner().invoke(app, ["train", str(recipe), "--seeds", "1", "--output", str(seeds[0] / "seed-1")])
    assert isinstance(done.exception, FileExistsError)


def test_comparing_seeds_with_a_run_and_with_a_file(seeds, recipe, tmp_path):
    output = seeds[0]
    file = tmp_path / "evaluated.json"
    run("evaluate", output / "seed-1", "--data", recipe.parent, "--output", file)
    scores = json.loads(run("compare", output, output / "seed-2", file, "--format", "json"))
    assert list(dict.fromkeys(score["run"] for score in scores)) == ["seeds", "seed-2", "evaluated"]
    assert list(dict.fromkeys(score["language"] for score in scores)) == ["de", "en", "fr", "mean"]
    found = {(score["language"], score["run"], score["metric"]): score for score in scores}
    reports = [json.loads((output / f"seed-{seed}/evaluation/validation.json").read_text()) for seed in (1, 2)]
    for language in ("de", "en", "fr"):
        mean = found[language, "seeds", "mean_recall"]["mean"]
        assert mean == pytest.approx(sum(report[language]["mean_recall"] for report in reports) / 2)
        assert found[language, "evaluated", "t2i_r1"]["mean"] == reports[0][language]["t2i_r1"]
        difference = found[language, "seed-2", "mean_recall"]["difference"]
        assert difference == pytest.approx(reports[1][language]["mean_recall"] - mean)
    rows = list(csv.DictReader(io.StringIO(run("compare", output, file, "--format", "csv"))))
    assert rows[0].keys() == scores[0].keys() and len(rows) == len(scores) * 2 / 3
    table = run("compare", output, file, "--format", "md", "--metrics", "t2i_r1,mean_recall")
    assert "| language | run | t2i_r1 | mean_recall |" in table and "paired bootstraps" in table


def test_the_table_of_the_terminal(seeds):
    shown = run("compare", seeds[0], seeds[0] / "seed-1", "--metrics", "mean_recall")
    assert "captions, in %" in shown and "Difference to seeds" in shown


def test_runs_of_earlier_versions_are_compared_without_significance(seeds, tmp_path, caplog):
    old = shutil.copytree(seeds[0] / "seed-1", tmp_path / "old")
    (old / "evaluation" / "validation.ranks.npz").unlink()
    scores = json.loads(run("compare", seeds[0], old, "--format", "json"))
    assert all(score["difference"] is None for score in scores)
    assert f"{old}: there are no ranks of queries" in caplog.text


def test_what_cannot_be_compared_is_refused(seeds, tmp_path, caplog):
    def refused(*paths):
        done = CliRunner().invoke(app, ["compare", *map(str, paths)])
        assert isinstance(done.exception, ComparisonError), done.output
        return str(done.exception)

    assert f"{tmp_path} has no results: it is no folder of a run" in refused(tmp_path)
    (tmp_path / "broken.json").write_text("{")
    assert "broken.json cannot be read as results" in refused(tmp_path / "broken.json")
    (tmp_path / "rates.json").write_text('{"de": 0.1}')
    assert "has no results of a test set" in refused(tmp_path / "rates.json")
    assert "is named twice" in refused(seeds[0], seeds[0])
    other = shutil.copytree(seeds[0] / "seed-1", tmp_path / "other")
    report = json.loads((other / "evaluation" / "validation.json").read_text())
    report["de"]["n_texts"] = 15
    (other / "evaluation" / "validation.json").write_text(json.dumps(report))
    assert "were evaluated on different queries" in refused(seeds[0], other)
    part = shutil.copytree(seeds[0], tmp_path / "part")
    (part / "seed-2" / "README.md").unlink()
    run("compare", part)
    assert "seed-2: the run has not come to its end, and is left out" in caplog.text

"""How the demo comes to its number of steps, on shapes: timed, kept, and the same run when asked for by number."""

import json
import time

import pytest
import typer
import yaml
from rich.console import Console
from tiny_training import TEXT, VISION, write_shapes
from transformers import TrainerCallback

from babelens.cli import demo
from babelens.cli.demo import DEMOS
from babelens.trainers.checkpoints import newest_checkpoint
from babelens.workflows import time_budget
from babelens.workflows.base import RecipeRun
from babelens.workflows.loading import load_recipe
from babelens.workflows.time_budget import (
    Pace,
    StageTime,
    planned_pace,
    seconds_of,
    stage_times,
    stages_of,
    steps_of,
    steps_within,
    with_steps,
)


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    shapes = write_shapes(folder, captioned=("en", "de"))
    recipe = {
        "method": "mural",
        "model": {"preset": "mural-tiny", "overrides": {"text_config": TEXT, "vision_config": VISION}},
        "tokenizer": {"vocab_size": 200},
        "image": {"resize": 36, "crop": 32},
        "train": {
            "image_text": {"source": str(shapes), "languages": ["en", "de"], "license": "CC0-1.0"},
            "text_text": {"source": str(shapes / "pairs.tsv"), "pairs": [["en", "fr"]], "license": "CC0-1.0"},
        },
        "validation": {"source": str(shapes)},
        "training": {
            "per_device_train_batch_size": 8,
            "max_steps": 700,
            "warmup_steps": 70,
            "lr_scheduler_type": "linear",
            "save_strategy": "steps",
            "save_steps": 350,
            "eval_strategy": "steps",
            "eval_steps": 350,
            "logging_steps": 50,
            "report_to": "none",
            "use_cpu": True,
        },
    }
    file = folder / "shapes.yaml"
    file.write_text(yaml.safe_dump(recipe))
    return file


@pytest.fixture
def quick(monkeypatch):
    """Fewer steps are timed."""
    monkeypatch.setattr(time_budget, "_MOST", 6)


def in_stages(recipe_file):
    overrides = {
        "stages": [
            {"name": "first", "tasks": ["image_text"], "training": {"max_steps": 700, "eval_strategy": "no"}},
            {"name": "second", "tasks": ["text_text"], "training": {"max_steps": 300, "warmup_steps": 0.1}},
        ]
    }
    return load_recipe(recipe_file, overrides)


def test_a_schedule_is_shortened_as_a_whole(recipe_file):
    recipe = load_recipe(recipe_file)
    assert steps_of(recipe) == 700 and with_steps(recipe, 700) is recipe
    short = with_steps(recipe, 200).training
    assert [short[name] for name in ("max_steps", "warmup_steps", "save_steps", "eval_steps")] == [200, 20, 100, 100]
    assert {
        name: short[name] for name in ("learning_rate_mapping", "per_device_train_batch_size") if name in short
    } == {"per_device_train_batch_size": 8}


def test_stages_share_the_steps_in_proportion(recipe_file):
    recipe = in_stages(recipe_file)
    assert steps_of(recipe) == 1000
    first, second = with_steps(recipe, 500).stages
    assert (first.training["max_steps"], first.training["warmup_steps"]) == (350, 35)
    assert (second.training["max_steps"], second.training["warmup_steps"]) == (150, 0.1)
    assert [stage.tasks for stage in (first, second)] == [["image_text"], ["text_text"]]


@pytest.mark.parametrize("method", DEMOS)
def test_every_demo_can_be_shortened(method, tmp_path):
    recipe = load_recipe(DEMOS[method])
    own = steps_of(recipe)
    short = with_steps(recipe, own // 2)
    assert abs(steps_of(short) - own // 2) <= len(stages_of(recipe))
    run = RecipeRun(short, tmp_path, "")
    for stage, whole in zip(run.recipe.all_stages, stages_of(recipe), strict=True):
        arguments, full = run.training.arguments(stage), whole.training
        assert arguments.max_steps == round(full["max_steps"] / 2)
        if full.get("warmup_steps", 0) >= 1:
            assert arguments.warmup_steps == full["warmup_steps"] / 2


def test_as_many_steps_as_fit():
    one = [StageTime(steps=700, step=0.2, evaluation=10)]
    assert steps_within(300, one, fewest=200) == 700  # more than the recipe's are not needed
    assert steps_within(80, one, fewest=200) == 350
    assert seconds_of(one, 350) == pytest.approx(80)
    assert steps_within(10, one, fewest=200) == 200  # fewer do not learn
    two = [StageTime(steps=600, step=0.5), StageTime(steps=400, step=0.25)]
    assert steps_within(200, two, fewest=1) == 500
    assert steps_within(199, two, fewest=1) == 490  # whole tens


def test_what_is_timed_is_thrown_away(recipe_file, tmp_path, quick):
    run = RecipeRun(in_stages(recipe_file), tmp_path / "run", "")
    times = stage_times(run)
    assert [time.steps for time in times] == [700, 300]
    assert all(time.step > 0 for time in times)
    assert times[0].evaluation == times[1].evaluation == 0  # the second is shorter than its first evaluation
    assert not (tmp_path / "run").exists()
    evaluated = stage_times(RecipeRun(load_recipe(recipe_file), tmp_path / "run", ""))
    assert evaluated[0].evaluation > 0


def begun(recipe_file, output, asked=None, minutes=0.01):
    recipe = load_recipe(recipe_file, {"training.max_steps": 35, "training.save_steps": 5, "training.eval_steps": 50})
    run = RecipeRun(recipe, output, "")
    steps, _ = demo._steps(run, 60 * minutes, asked, Console(quiet=True))
    return RecipeRun(with_steps(recipe, steps), output, ""), steps


def test_a_number_that_was_timed_can_be_asked_for(recipe_file, tmp_path, quick):
    """To the same weights."""
    timed, steps = begun(recipe_file, tmp_path / "timed", minutes=1e-9)
    assert steps == round(demo._LEAST * 35)
    asked, again = begun(recipe_file, tmp_path / "asked", asked=steps)
    assert again == steps
    assert timed.train().state.max_steps == asked.train().state.max_steps == steps
    assert (timed.output / "model.safetensors").read_bytes() == (asked.output / "model.safetensors").read_bytes()


def test_a_run_that_goes_on_keeps_its_number(recipe_file, tmp_path, monkeypatch):
    _, steps = begun(recipe_file, tmp_path, asked=12)
    assert json.loads((tmp_path / "checkpoints" / "steps.json").read_text()) == {"steps": 12}
    monkeypatch.setattr(time_budget, "stage_times", None)  # nothing is timed again
    assert begun(recipe_file, tmp_path)[1] == begun(recipe_file, tmp_path, asked=12)[1] == steps == 12
    with pytest.raises(typer.BadParameter, match="was begun with 12 steps"):
        begun(recipe_file, tmp_path, asked=13)


def test_a_run_of_earlier_versions_has_all_steps(recipe_file, tmp_path, monkeypatch):
    run, _ = begun(recipe_file, tmp_path, asked=35)
    run.train()
    (tmp_path / "checkpoints" / "steps.json").unlink()
    assert newest_checkpoint(tmp_path / "checkpoints")
    monkeypatch.setattr(time_budget, "stage_times", None)
    assert begun(recipe_file, tmp_path)[1] == 35


class Slowdown(TrainerCallback):
    """Makes steps slower, as other processes do."""

    def __init__(self, begins):
        self.begins = begins

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step >= self.begins:
            time.sleep(0.3)


def slow_run(recipe_file, output, begins, planned, said):
    """A run of 60 steps that are slow from some step on."""
    recipe = load_recipe(recipe_file, {"training.max_steps": 60, "training.warmup_steps": 5})
    run = RecipeRun(recipe, output, "")
    pace = Pace(planned_pace(recipe, [planned]), lambda *seconds: said.append(seconds))
    run.training.callbacks += [Slowdown(begins), pace]
    return run.train(), pace


def test_a_run_whose_steps_become_ten_times_slower_ends_in_its_time(recipe_file, tmp_path):
    said = []
    trainer, pace = slow_run(recipe_file, tmp_path, 10, StageTime(700, 0.03, 5.0), said)
    # From step 15 on, the rest of 6.8 seconds holds fewer than the 45 steps that are left of the schedule.
    done = trainer.state.global_step
    assert pace.is_shortened and 5 < done < 40 and trainer.state.max_steps == done
    ((slow, planned),) = said
    assert slow >= 10 * planned == 0.3
    assert trainer.lr_scheduler.get_last_lr()[0] == 0  # the schedule was passed through, not broken off
    assert newest_checkpoint(tmp_path / "checkpoints").name == f"checkpoint-{done}"
    # The same command again has nothing left to do.
    chosen = demo._keep(demo._steps_done(load_recipe(recipe_file, {"training.max_steps": 60}), trainer), tmp_path)
    assert chosen == done
    again = RecipeRun(with_steps(load_recipe(recipe_file, {"training.max_steps": 60}), chosen), tmp_path, "")
    assert again.train(resume=True).state.global_step == done


def test_a_run_that_keeps_its_pace_keeps_its_schedule(recipe_file, tmp_path):
    said = []
    trainer, pace = slow_run(recipe_file, tmp_path, 61, StageTime(700, 60.0), said)
    assert (trainer.state.global_step, pace.is_shortened, said) == (60, False, [])


def test_a_run_without_time_left_stops(recipe_file, tmp_path):
    said = []
    trainer, _ = slow_run(recipe_file, tmp_path, 0, StageTime(700, 0.001), said)
    assert len(said) == 1 and trainer.state.global_step == 6

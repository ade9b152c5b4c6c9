"""The schedule of a demo with fewer steps."""

import pytest
import yaml

from babelens.cli.demo import DEMOS, _with_steps
from babelens.training.base import RecipeRun
from babelens.training.loading import load_recipe
from tests.support.tiny_training import TEXT, VISION, write_shapes


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
    assert _with_steps(recipe, 700).training == recipe.training
    short = _with_steps(recipe, 200).training
    assert [short[name] for name in ("max_steps", "warmup_steps", "save_steps", "eval_steps")] == [200, 20, 100, 100]
    assert short["per_device_train_batch_size"] == 8


def test_stages_share_the_steps_in_proportion(recipe_file):
    first, second = _with_steps(in_stages(recipe_file), 500).stages
    assert (first.training["max_steps"], first.training["warmup_steps"]) == (350, 35)
    assert (second.training["max_steps"], second.training["warmup_steps"]) == (150, 0.1)
    assert [stage.tasks for stage in (first, second)] == [["image_text"], ["text_text"]]


@pytest.mark.parametrize("method", DEMOS)
def test_every_demo_can_be_shortened(method, tmp_path):
    run = RecipeRun(_with_steps(load_recipe(DEMOS[method]), 60), tmp_path, "")
    steps = [run.training.arguments(stage).max_steps for stage in run.recipe.all_stages]
    assert abs(sum(steps) - 60) <= len(steps)

"""ETCL's recipes: both stages from nothing, the second alone from a MURAL, and a stage with its own languages."""

import json

import pytest
import yaml
from transformers import AutoModel, AutoProcessor
from typer.testing import CliRunner

from babelens import EtclModel, EtclProcessor, EtclTrainer
from babelens.cli.main import app
from babelens.training.base import RecipeRun
from babelens.training.loading import load_recipe
from tests.support.tiny_training import TEXT, VISION, write_shapes


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    folder = write_shapes(tmp_path_factory.mktemp("shapes"))
    images = {"source": str(folder), "license": "CC0-1.0"}
    return {
        "method": "etcl",
        "model": {"preset": "etcl-tiny", "overrides": {"text_config": TEXT, "vision_config": VISION}},
        "tokenizer": {"vocab_size": 200},
        "image": {"resize": 36, "crop": 32},
        "train": {
            "image_text": images | {"languages": ["en"]},
            "text_text": {"source": str(folder / "pairs.tsv"), "pairs": {"from": ["en"], "to": ["de", "fr"]}},
            "triplet": images | {"languages": ["en", "de"]},
        },
        "training": {
            "per_device_train_batch_size": 4,
            "max_steps": 2,
            "learning_rate": 1e-3,
            "save_strategy": "no",
            "logging_steps": 1,
            "report_to": "none",
            "use_cpu": True,
        },
        "stages": [{"name": "mural", "tasks": ["image_text", "text_text"]}, {"name": "etcl", "tasks": ["triplet"]}],
    }


def recipe(content, folder, **changes):
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump(content | changes))
    return file


def train(file, output):
    done = CliRunner().invoke(app, ["train", str(file), "--output", str(output)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return AutoModel.from_pretrained(output), AutoProcessor.from_pretrained(output)


def test_both_stages_from_nothing(content, tmp_path):
    model, processor = train(recipe(content, tmp_path), tmp_path / "run")
    assert type(model) is EtclModel and type(processor) is EtclProcessor
    card = (tmp_path / "run" / "README.md").read_text()
    assert "triple contrastive learning" in card
    run = RecipeRun(load_recipe(recipe(content, tmp_path)), tmp_path, command="")
    assert (run.data.image_languages, run.data.pair_languages) == (["en", "de"], ["fr"])


def test_the_second_stage_goes_on_from_a_mural(content, tmp_path):
    task_data = {task: content["train"][task] for task in ("image_text", "text_text")}
    overrides = {"text_config": TEXT, "vision_config": VISION}
    mural_model = {"preset": "mural-tiny", "overrides": overrides}
    mural, _ = train(
        recipe(content, tmp_path, method="mural", model=mural_model, train=task_data, stages=[]), tmp_path / "mural"
    )
    started = {
        "from_pretrained": str(tmp_path / "mural"),
        "overrides": {"label_smoothing": 0.0},
        "attn_implementation": "eager",
    }
    changes = {"model": started, "stages": content["stages"][1:], "tokenizer": None, "image": None}
    run = RecipeRun(load_recipe(recipe(content, tmp_path, **changes)), tmp_path, command="")
    model = run.builder.make_model(run.builder.make_processor())
    assert model.config.label_smoothing == 0.0
    assert model.text_model.config._attn_implementation == "eager"
    assert (model.text_projection.weight == mural.text_heads["image_text"].weight).all()
    model, _ = train(recipe(content, tmp_path, **changes), tmp_path / "etcl")
    assert type(model) is EtclModel


def test_a_stage_may_have_its_own_languages(content, tmp_path, monkeypatch):
    seen = []
    step = EtclTrainer.training_step

    def observed(self, model, inputs, *arguments):
        view = self.tasks["image_text"]
        seen.append({example["language"] for example in view.__getitems__(range(len(view)))})
        return step(self, model, inputs, *arguments)

    monkeypatch.setattr(EtclTrainer, "training_step", observed)
    first, second = content["stages"][0], {"name": "more", "tasks": ["image_text"], "languages": ["de", "fr"]}
    file = recipe(content, tmp_path, stages=[first, second])
    train(file, tmp_path / "run")
    assert seen == [{"en"}] * 2 + [{"de", "fr"}] * 2
    run = RecipeRun(load_recipe(file), tmp_path, command="")
    assert (run.data.image_languages, run.data.pair_languages) == (["en", "de", "fr"], [])


@pytest.mark.parametrize("name", ["6lang", "plus-ja", "plus-cs", "plus-de", "etcl"])
def test_the_rows_of_the_comparison_differ_in_the_second_stage_alone(name):
    mural, row = load_recipe("emoji/etcl/mural"), load_recipe(f"emoji/etcl/{name}")
    assert row.stages[0] == mural.stages[0]
    assert row.training == mural.training and row.model == mural.model
    assert all(row.train[task] == source for task, source in mural.train.items())
    etcl = load_recipe("emoji/etcl/etcl")
    assert row.stages[1].training == etcl.stages[1].training
    assert json.dumps(row.stages[1].tasks) == json.dumps(["triplet"] if name == "etcl" else ["image_text"])

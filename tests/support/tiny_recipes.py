"""A small recipe of each method on the files of `write_shapes`; some use a saved `clip` in their folder."""

import yaml
from typer.testing import CliRunner

from babelens.cli.main import app
from babelens.training.run import RecipeRun
from babelens.training.schema import load_recipe
from tests.support.tiny_training import TEXT, VISION

SAVING = {"save_strategy": "steps", "save_steps": 2, "logging_steps": 1}


def train(content, folder, *options, **changes):
    folder.mkdir(exist_ok=True)
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump(content | changes))
    command = ["train", str(file), "--output", str(folder / "run"), *options]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return folder / "run"


def recipe_run(content, folder, output="run", settings=None):
    """The run of a recipe, whose file is `recipe.yaml` in the folder."""
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump(content))
    return RecipeRun(load_recipe(file, settings), folder / output, "babelens train recipe.yaml")


def mural(folder):
    return {
        "method": "mural",
        "model": {"preset": "mural-tiny", "overrides": {"text_config": TEXT, "vision_config": VISION}},
        "tokenizer": {"vocab_size": 200},
        "image": {"resize": 36, "crop": 32},
        "train": {
            "image_text": {"source": str(folder), "languages": ["en", "de"], "license": "CC0-1.0"},
            "text_text": {"source": str(folder / "pairs.tsv"), "pairs": [["en", "fr"]], "license": "CC0-1.0"},
        },
        "validation": {"source": str(folder)},
        "training": {"per_device_train_batch_size": 8, "max_steps": 1, "report_to": "none", "use_cpu": True},
    }


def mla(folder):
    return mural(folder) | {
        "method": "mla",
        "model": {"from_pretrained": str(folder / "clip"), "overrides": {"languages": ["de", "fr"]}},
        "tokenizer": None,
        "multilingual_tokenizer": {"vocab_size": 200},
        "image": None,
        "train": {"text_text": {"source": str(folder / "pairs.tsv"), "license": "CC0-1.0"}},
    }


def student(folder):
    text = {"preset": "mkd-tiny", "training": {"max_steps": 1, "use_cpu": True, "report_to": "none"}}
    return mla(folder) | {"method": "mla_student", "text_model": text}


def smalr(folder):
    return {
        "method": "smalr",
        "model": {"preset": "smalr-tiny", "overrides": {"vision_config": VISION}},
        "words": {"min_frequency": 1},
        "image": {"resize": 36, "crop": 32},
        "train": {"image_text": {"source": str(folder), "license": "CC0-1.0"}},
        "training": {"per_device_train_batch_size": 8, "max_steps": 1, "report_to": "none", "use_cpu": True},
    }


def rc3(folder):
    images = {"source": str(folder), "license": "CC0-1.0"}
    return mural(folder) | {
        "method": "rc3",
        "model": {"preset": "rc3-tiny"},
        "tokenizer": {"vocab_size": 420},
        "image": {"resize": 64, "crop": 64},
        "train": {"strict": images, "weak": images, "parallel": {"source": str(folder / "pairs.tsv")}},
    }


def liwe(folder):
    return smalr(folder) | {"method": "liwe", "model": {"preset": "liwe-tiny", "overrides": {"vision_config": VISION}}}

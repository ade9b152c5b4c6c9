"""A method of another package: with its own files and one line that registers it, babelens runs its recipes."""

import importlib
import json
import sys
from textwrap import dedent

import pytest
import yaml
from transformers import AutoModel, AutoProcessor
from typer.testing import CliRunner

from babelens import METHODS, presets
from babelens.cli.main import app
from babelens.inference.embedder import Embedder
from babelens.trainers.frozen_features import frozen_names
from babelens.training.run import RecipeRun
from babelens.training.schema import load_recipe
from babelens.utils.errors import RecipeError
from tests.support.tiny_training import TEXT, VISION, write_shapes

# Files that another package would have: no file of babelens is changed.
FILES = {
    "__init__.py": """
        from pathlib import Path
        from babelens.registry import Method, register_method
        from .configuration_toy import ToyConfig
        from .modeling_toy import ToyModel
        from .processing_toy import ToyProcessor

        parts = {"trainer": "babelens.trainers.mural:MuralTrainer", "builder": "toy_method.builder:ToyBuilder"}
        register_method(Method(ToyConfig, ToyModel, ToyProcessor, **parts, files=Path(__file__).parent))
    """,
    "configuration_toy.py": """
        from huggingface_hub.dataclasses import strict
        from babelens.configuration.configuration_mural import MuralConfig

        @strict
        class ToyConfig(MuralConfig):
            model_type = "toy"
            auto_classes = ("AutoConfig",)
    """,
    "modeling_toy.py": """
        from babelens.modeling.modeling_mural import MuralModel
        from .configuration_toy import ToyConfig

        class ToyModel(MuralModel):
            config_class = ToyConfig
            auto_classes = ("AutoModel",)
    """,
    "processing_toy.py": """
        from babelens.processing.processing_dual_encoder import DualEncoderProcessor

        class ToyProcessor(DualEncoderProcessor):
            auto_classes = ("AutoProcessor",)
    """,
    "builder.py": """
        from babelens.training.build import ModelBuilder
        from babelens.training.schema import DualEncoderRecipe

        class ToyRecipe(DualEncoderRecipe):
            freeze_images: bool = False

        class ToyBuilder(ModelBuilder):
            recipe_class = ToyRecipe

            def make_model(self, processor):
                model = super().make_model(processor)
                model.vision_model.requires_grad_(not self.recipe.freeze_images)
                return model
    """,
    "model_cards/toy.md": '{% extends "template.md.jinja" %}{% block summary %}A toy dual encoder.{% endblock %}',
}
PRESET = {"method": "toy", "source": "", "paper": {}, "config": {"text_config": TEXT, "vision_config": VISION}}


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory):
    folder = write_shapes(tmp_path_factory.mktemp("toy"))
    for name, text in (FILES | {"presets/toy-tiny.json": json.dumps(PRESET)}).items():
        (folder / "toy_method" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "toy_method" / name).write_text(dedent(text).lstrip())
    source = {"source": str(folder), "languages": ["en", "de"], "license": "CC0-1.0"}
    recipe = {"method": "toy", "freeze_images": True, "model": {"preset": "toy-tiny"}, "train": {"image_text": source}}
    recipe |= {"tokenizer": {"vocab_size": 200}, "image": {"resize": 36, "crop": 32}}
    recipe["training"] = {"per_device_train_batch_size": 8, "max_steps": 3, "report_to": "none", "use_cpu": True}
    (folder / "toy.yaml").write_text(yaml.safe_dump(recipe))
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(folder)
        patched.setattr(presets, "_FOLDERS", [*presets._FOLDERS])
        importlib.import_module("toy_method")
        yield folder / "toy.yaml"
        del METHODS["toy"]
        for name in [name for name in sys.modules if name.partition(".")[0] == "toy_method"]:
            del sys.modules[name]


def test_the_command_line_trains_it_and_its_folder_carries_its_code(recipe_file, tmp_path):
    done = CliRunner().invoke(app, ["train", str(recipe_file), "--output", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    model, processor = AutoModel.from_pretrained(tmp_path), AutoProcessor.from_pretrained(tmp_path)
    assert (type(model).__name__, type(processor).__name__) == ("ToyModel", "ToyProcessor")
    assert Embedder(model, processor).encode_text(["ein roter Punkt"], language="de").shape == (1, 32)
    assert json.loads((tmp_path / "config.json").read_text())["auto_map"]["AutoModel"] == "modeling_toy.ToyModel"
    assert all((tmp_path / f"{room}_toy.py").is_file() for room in ("configuration", "modeling", "processing"))
    assert "A toy dual encoder." in (tmp_path / "README.md").read_text()


def test_its_keys_are_its_own(recipe_file, tmp_path):
    run = RecipeRun(load_recipe(recipe_file), tmp_path, "")
    assert frozen_names(run.builder.make_model(run.builder.make_processor())) == ("image",)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(recipe_file.read_text().replace("method: toy", "method: mural"))
    with pytest.raises(RecipeError, match="unknown key freeze_images"):
        load_recipe(wrong)

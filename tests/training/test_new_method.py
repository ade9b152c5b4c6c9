"""A method of another package: it brings its own files and one line that registers it, and babelens runs its recipes.

The package is written into a temporary folder, as somebody would write it: no file of babelens is changed for it.
"""

import importlib
import json
import sys
from textwrap import dedent

import numpy as np
import pytest
import yaml
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, AutoModel, AutoProcessor
from typer.testing import CliRunner

from babelens import METHODS
from babelens.cli.main import app
from babelens.configuration import presets
from babelens.inference.embedder import Embedder
from babelens.publishing import folder_problems
from babelens.training.base import RecipeRun
from babelens.training.loading import load_recipe
from babelens.utils.errors import RecipeError
from tests.support.tiny_training import TEXT, VISION, write_shapes

FILES = {
    "__init__.py": """
        from pathlib import Path

        from babelens.registry import Method, register_method

        from .configuration_toy import ToyConfig
        from .modeling_toy import ToyModel
        from .processing_toy import ToyProcessor

        register_method(
            Method(
                ToyConfig,
                ToyModel,
                ToyProcessor,
                trainer="toy_method.trainer:ToyTrainer",
                workflow="toy_method.workflow:WORKFLOW",
                files=Path(__file__).parent,
            )
        )
    """,
    "configuration_toy.py": """
        from huggingface_hub.dataclasses import strict
        from transformers import AutoConfig
        from transformers.configuration_utils import SubConfigSpec

        from babelens.configuration.configuration_two_tower import TwoTowerConfig


        @strict
        class ToyConfig(TwoTowerConfig):
            model_type = "toy"
            auto_classes = ("AutoConfig",)
            sub_configs_defaults = {
                "text_config": SubConfigSpec(config_class=AutoConfig, model_type="bert"),
                "vision_config": SubConfigSpec(config_class=AutoConfig, model_type="clip_vision_model"),
            }

            temperature_init_value: float | int = 0.1
    """,
    "modeling_toy.py": """
        from transformers.utils import can_return_tuple

        from babelens.modeling.losses import symmetric_contrastive_loss
        from babelens.modeling.modeling_two_tower import TwoTowerModel

        from .configuration_toy import ToyConfig


        class ToyModel(TwoTowerModel):
            config_class = ToyConfig
            auto_classes = ("AutoModel",)

            def __init__(self, config):
                super().__init__(config)
                self.text_projection = self.new_text_head()
                self.post_init()

            @can_return_tuple
            def get_text_features(self, input_ids, attention_mask=None, **kwargs):
                return self.embed_text(input_ids, attention_mask, self.text_projection, **kwargs)

            def training_head(self, has_images, has_translations):
                return self.text_projection

            def contrastive_objective(self, output, *, positives=None, tile_size=None):
                images, texts = output.image_embeds, output.text_embeds
                return symmetric_contrastive_loss(images, texts, output.temperature, positives=positives)
    """,
    "processing_toy.py": """
        from babelens.processing.processing_dual_encoder import DualEncoderProcessor


        class ToyProcessor(DualEncoderProcessor):
            auto_classes = ("AutoProcessor",)
    """,
    "trainer.py": """
        from babelens.trainers.contrastive import ContrastiveTrainer


        class ToyTrainer(ContrastiveTrainer):
            task_weights = {"image_text": 1.0}
    """,
    "workflow.py": """
        from babelens.training.loading import Workflow
        from babelens.training.building import ModelBuilder
        from babelens.training.recipe import DualEncoderRecipe


        class ToyRecipe(DualEncoderRecipe):
            freeze_images: bool = False


        class ToyBuilder(ModelBuilder):
            def make_model(self, processor):
                model = super().make_model(processor)
                model.vision_model.requires_grad_(not self.recipe.freeze_images)
                return model


        WORKFLOW = Workflow(recipe=ToyRecipe, builder=ToyBuilder)
    """,
    "model_cards/toy.md": """
        {% extends "template.md.jinja" %}
        {% block summary %}A toy dual encoder.{% endblock %}
    """,
}
PRESET = {"method": "toy", "source": "", "paper": {}, "config": {"text_config": TEXT, "vision_config": VISION}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the package, data and a recipe, in which the package is imported."""
    folder = tmp_path_factory.mktemp("toy")
    package = folder / "toy_method"
    for name, text in FILES.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(dedent(text).lstrip())
    (package / "presets").mkdir()
    (package / "presets" / "toy-tiny.json").write_text(json.dumps(PRESET))
    write_shapes(folder)
    recipe = {
        "method": "toy",
        "freeze_images": True,
        "model": {"preset": "toy-tiny"},
        "tokenizer": {"vocab_size": 200},
        "image": {"resize": 36, "crop": 32},
        "train": {"image_text": {"source": str(folder), "languages": ["en", "de"], "license": "CC0-1.0"}},
        "training": {"per_device_train_batch_size": 8, "max_steps": 3, "report_to": "none", "use_cpu": True},
    }
    (folder / "toy.yaml").write_text(yaml.safe_dump(recipe))
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(folder)
        patched.setattr(presets, "_FOLDERS", [*presets._FOLDERS])
        importlib.import_module("toy_method")
        yield folder
        del METHODS["toy"]
        for name in [name for name in sys.modules if name.partition(".")[0] == "toy_method"]:
            del sys.modules[name]


@pytest.fixture(scope="module")
def trained(folder):
    command = ["train", str(folder / "toy.yaml"), "--output", str(folder / "run")]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return folder / "run"


def test_the_command_line_trains_it(trained):
    toy = sys.modules["toy_method"]
    model, processor = AutoModel.from_pretrained(trained), AutoProcessor.from_pretrained(trained)
    assert type(model) is toy.ToyModel and type(processor) is toy.ToyProcessor
    assert type(AutoConfig.from_pretrained(trained)) is toy.ToyConfig
    embeddings = Embedder(model, processor).encode_text(["ein roter Punkt"], language="de")
    assert embeddings.shape == (1, 32)


def test_its_folder_carries_its_code_and_its_card(trained):
    assert json.loads((trained / "config.json").read_text())["auto_map"]["AutoModel"] == "modeling_toy.ToyModel"
    assert all((trained / f"{room}_toy.py").is_file() for room in ("configuration", "modeling", "processing"))
    card = (trained / "README.md").read_text()
    assert "A toy dual encoder." in card and "freeze_images" not in card


def test_it_loads_in_sentence_transformers(trained):
    """By the module of the installed babelens, which its own code needs too."""
    model = SentenceTransformer(str(trained), trust_remote_code=True, device="cpu", local_files_only=True)
    expected = Embedder.from_pretrained(trained, device="cpu").encode_text(["ein roter Punkt"], language="de")
    np.testing.assert_allclose(model.encode(["ein roter Punkt"], prompt_name="de"), expected, rtol=0, atol=1e-6)
    assert not [problem for problem in folder_problems(trained) if "modules.json" in problem]


def test_its_workflow_builds_the_model(folder, trained):
    """The image tower is what the seed drew, since the recipe freezes it."""
    run = RecipeRun(load_recipe(folder / "toy.yaml"), folder / "other", "")
    model = run.builder.make_model(run.builder.make_processor())
    assert not any(weight.requires_grad for weight in model.vision_model.parameters())
    assert all(weight.requires_grad for weight in model.text_model.parameters())


def test_its_keys_are_its_own(folder):
    recipe = yaml.safe_load((folder / "toy.yaml").read_text())
    wrong = folder / "wrong.yaml"
    wrong.write_text(yaml.safe_dump(recipe | {"method": "mural"}))
    with pytest.raises(RecipeError, match="unknown key freeze_images"):
        load_recipe(wrong)
    wrong.write_text(yaml.safe_dump(recipe | {"freeze_image": True}))
    with pytest.raises(RecipeError, match="unknown key freeze_image; did you mean 'freeze_images'"):
        load_recipe(wrong)
    wrong.write_text(yaml.safe_dump(recipe | {"words": {"min_frequency": 2}}))
    with pytest.raises(RecipeError, match="unknown key words"):
        load_recipe(wrong)
    with pytest.raises(RecipeError, match="there is no 'toy-tinny'; did you mean 'toy-tiny'"):
        RecipeRun(load_recipe(folder / "toy.yaml", {"model.preset": "toy-tinny"}), folder / "x", "").check()

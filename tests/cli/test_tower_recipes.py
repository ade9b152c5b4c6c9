"""Recipes with `model: {image: …, text: …}`: from towers to a folder, and errors before any data are read."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import AutoModel, AutoProcessor, PreTrainedModel
from typer.testing import CliRunner

from babelens.cli.main import app
from babelens.training.data import RecipeData
from babelens.training.run import RecipeRun
from babelens.training.schema import load_recipe
from babelens.utils.errors import BabelensError, ModelFolderError, ModelKindError, RecipeError
from tests.support.tiny_backbones import saved_backbone
from tests.support.tiny_recipes import SAVING, mural
from tests.support.tiny_text_encoders import saved_encoder
from tests.support.tiny_training import write_shapes

CARD = "---\nlicense: {}\n---\nA tower.\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_shapes(tmp_path_factory.mktemp("shapes"), captioned=("en", "de"))
    saved_backbone("vit", folder / "vit")
    saved_encoder("bert", folder / "bert", "mean_tokens")
    for tower, license in (("vit", "mit"), ("bert", "apache-2.0")):
        (folder / tower / "README.md").write_text(CARD.format(license))
    return folder


def recipe(folder: Path, method: str = "mural", image: str = "vit", text: str = "bert") -> dict[str, Any]:
    content: dict[str, Any] = mural(folder) | {"method": method, "tokenizer": None, "image": None}
    images = content["train"]["image_text"]
    overrides = {"projection_dim": 8, "text_prompt": "query: ", "freeze": ["image", "text"]}
    content["model"] = {"image": str(folder / image), "text": str(folder / text), "overrides": overrides}
    content["train"]["image_text"] = images | {"languages": ["en"]}
    content["training"] |= SAVING | {"per_device_train_batch_size": 4, "max_steps": 4, "learning_rate": 1e-2}
    if method == "etcl":
        content["train"]["triplet"] = images
        content["stages"] = [
            {"name": "mural", "tasks": ["image_text", "text_text"]},
            {"name": "etcl", "tasks": ["triplet"]},
        ]
    else:
        overrides["shared_text_head"] = True
    return content


def written(content: dict[str, Any], file: Path) -> Path:
    file.write_text(yaml.safe_dump(content, allow_unicode=True))
    return file


def train(file: Path, output: Path, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["train", str(file), "--output", str(output), *arguments])


# ---- A run, from the towers to a folder ----


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory, cache: Path) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("trained")
    for method in ("mural", "etcl"):
        done = train(written(recipe(folder, method), root / f"{method}.yaml"), root / method)
        assert done.exit_code == 0, done.output
    assert list(cache.iterdir())
    return {method: root / method for method in ("mural", "etcl")}


@pytest.mark.parametrize("method", ["mural", "etcl"])
def test_the_folder_is_a_model_of_both_towers(trained: dict[str, Path], folder: Path, method: str) -> None:
    model, processor = (auto.from_pretrained(trained[method]) for auto in (AutoModel, AutoProcessor))
    assert model.config.model_type == method
    assert model.config.text_pooling == "mean"  # as the folder of the text encoder states
    assert model.frozen_towers == ("image", "text")
    assert processor.text_prompt == model.config.text_prompt == "query: "
    for tower, name in ((model.vision_model, "vit"), (model.text_model, "bert")):
        source = AutoModel.from_pretrained(folder / name).state_dict()
        assert all(torch.equal(value, source[key]) for key, value in tower.state_dict().items())
    assert processor.image_processor.size == AutoProcessor.from_pretrained(folder / "vit", backend="pil").size


def test_towers_may_be_drawn_anew(folder: Path, tmp_path: Path) -> None:
    """The pretrained ones then give their sizes, the image processor and the tokenizer."""
    content = recipe(folder)
    content["model"]["fresh_towers"] = ["text"]
    made = RecipeRun(load_recipe(written(content, tmp_path / "recipe.yaml")), tmp_path / "run", "test").builder
    model = made.make_model(made.make_processor())
    own = {name: AutoModel.from_pretrained(folder / name).state_dict() for name in ("vit", "bert")}
    assert all(torch.equal(value, own["vit"][name]) for name, value in model.vision_model.state_dict().items())
    drawn = {name: value for name, value in model.text_model.state_dict().items() if value.dim() > 1}
    assert drawn and not any(
        torch.equal(value, own["bert"][name]) for name, value in drawn.items() if name in own["bert"]
    )
    content["model"] = {"preset": "mural-tiny", "fresh_towers": ["text"]}
    with pytest.raises(RecipeError, match="fresh_towers"):
        load_recipe(written(content, tmp_path / "recipe.yaml"))


def test_heads_first_and_then_the_upper_layer(folder: Path, tmp_path: Path) -> None:
    content = recipe(folder)
    tasks = ["image_text", "text_text"]
    layers = {"towers": {"text": {"train": "upper", "layers": 1}}, "learning_rate_mapping": {"^text_model": 1e-3}}
    content["stages"] = [
        {"name": "heads", "tasks": tasks},
        {"name": "layers", "tasks": tasks, "training": layers},
    ]
    done = train(written(content, tmp_path / "recipe.yaml"), tmp_path / "run")
    assert done.exit_code == 0, done.output
    model, source = AutoModel.from_pretrained(tmp_path / "run"), AutoModel.from_pretrained(folder / "bert")
    own = source.state_dict()
    changed = {name for name, value in model.text_model.state_dict().items() if not torch.equal(value, own[name])}
    assert changed and all(name.startswith("encoder.layer.1.") for name in changed)
    assert model.frozen_towers == ("image", "text")


# ---- Errors before data are read ----


@pytest.fixture(scope="module")
def wrong(folder: Path) -> Path:
    saved_encoder("bert", folder / "bare-bert")
    for file in (folder / "bare-bert").glob("tokenizer*"):
        file.unlink()
    return folder


def refused(content: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BabelensError:
    """The error of a recipe that is run; no data are read, and no weights."""

    def read(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("data or weights are read")

    monkeypatch.setattr(RecipeData, "corpora", property(read))
    monkeypatch.setattr(PreTrainedModel, "from_pretrained", read)
    with pytest.raises(BabelensError) as error:
        RecipeRun(load_recipe(written(content, tmp_path / "wrong.yaml")), tmp_path / "output", "").train()
    assert "\n" not in str(error.value) and not (tmp_path / "output").exists()
    return error.value


WRONG = [
    # the changes to `model`, in which folders have their names, and the error
    ({"preset": "mural-tiny"}, RecipeError, "model: give exactly one"),
    ({"image": "bert"}, ModelKindError, "a 'bert' model does not read images"),
    ({"text": "bare-bert"}, ModelFolderError, "bare-bert has no vocabulary"),
    ({"overrides": {"text_poling": "mean"}}, RecipeError, "model.overrides: .*did you mean 'text_pooling'"),
]


@pytest.mark.parametrize(("given", "kind", "message"), WRONG)
def test_what_cannot_be_a_tower_is_refused(
    wrong: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Any, kind: Any, message: str
) -> None:
    content = recipe(wrong)
    folders = {key: str(wrong / name) for key, name in given.items() if key in ("image", "text")}
    content["model"] |= given | folders
    error = refused(content, tmp_path, monkeypatch)
    assert isinstance(error, kind) and re.search(message, str(error))

import shutil

import pytest
import torch
from transformers import AutoModel, AutoProcessor

from babelens.trainers.frozen_features import frozen_names
from babelens.training.data import RecipeData
from babelens.utils.errors import BabelensError, RecipeError
from tests.support.tiny_backbones import saved_backbone
from tests.support.tiny_recipes import SAVING, mural, recipe_run, train
from tests.support.tiny_text_encoders import saved_encoder
from tests.support.tiny_training import write_shapes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_shapes(tmp_path_factory.mktemp("shapes"), captioned=("en", "de"))
    saved_backbone("vit", folder / "vit")
    saved_encoder("bert", folder / "bert", "mean_tokens")
    for tower, license in (("vit", "mit"), ("bert", "apache-2.0")):
        (folder / tower / "README.md").write_text(f"---\nlicense: {license}\n---\nA tower.\n")
    return folder


def recipe(folder, method="mural", image="vit", text="bert"):
    content = mural(folder) | {"method": method, "tokenizer": None, "image": None}
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


@pytest.mark.parametrize("method", ["mural", "etcl"])
def test_the_folder_is_a_model_of_both_towers(folder, cache, tmp_path, method):
    output = train(recipe(folder, method), tmp_path)
    assert list(cache.iterdir())
    model, processor = (auto.from_pretrained(output) for auto in (AutoModel, AutoProcessor))
    assert model.config.model_type == method
    assert model.config.text_pooling == "mean"  # as the folder of the text encoder states
    assert frozen_names(model) == ("image", "text")
    assert processor.text_prompt == model.config.text_prompt == "query: "
    for tower, name in ((model.vision_model, "vit"), (model.text_model, "bert")):
        source = AutoModel.from_pretrained(folder / name).state_dict()
        assert all(torch.equal(value, source[key]) for key, value in tower.state_dict().items())
    assert processor.image_processor.size == AutoProcessor.from_pretrained(folder / "vit", backend="pil").size


def test_towers_may_be_drawn_anew(folder, tmp_path):
    """The pretrained ones then give their sizes, the image processor and the tokenizer."""
    content = recipe(folder)
    content["model"]["fresh_towers"] = ["text"]
    made = recipe_run(content, tmp_path).builder
    model = made.make_model(made.make_processor())
    own = {name: AutoModel.from_pretrained(folder / name).state_dict() for name in ("vit", "bert")}
    assert all(torch.equal(value, own["vit"][name]) for name, value in model.vision_model.state_dict().items())
    drawn = {name: value for name, value in model.text_model.state_dict().items() if value.dim() > 1}
    assert drawn and not any(
        torch.equal(value, own["bert"][name]) for name, value in drawn.items() if name in own["bert"]
    )
    content["model"] = {"preset": "mural-tiny", "fresh_towers": ["text"]}
    with pytest.raises(RecipeError, match="fresh_towers"):
        recipe_run(content, tmp_path)


@pytest.mark.parametrize(
    ("given", "message"), [({"image": "bert"}, "does not read images"), ({"text": "bare"}, "bare has no vocabulary")]
)
def test_what_cannot_be_a_tower_is_refused_before_data_are_read(folder, tmp_path, monkeypatch, given, message):
    monkeypatch.setattr(RecipeData, "corpora", property(lambda _: pytest.fail("data are read")))
    shutil.copytree(folder / "bert", folder / "bare", ignore=shutil.ignore_patterns("tokenizer*"), dirs_exist_ok=True)
    run = recipe_run(recipe(folder, **given), tmp_path)
    with pytest.raises(BabelensError, match=message):
        run.train()
    assert not (tmp_path / "run").exists()

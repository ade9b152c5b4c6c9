import json

import pytest
import torch
from transformers import AutoModel, AutoModelForPreTraining, AutoProcessor

from babelens import Rc3ForPreTraining, Rc3ForVisualEntailment, Rc3Processor
from babelens.utils.errors import RecipeError
from tests.support.published_rc3 import PATCHES, write_mbart
from tests.support.tiny_backbones import saved_backbone
from tests.support.tiny_native import saved, tiny_clip
from tests.support.tiny_rc3 import SIZES
from tests.support.tiny_recipes import SAVING, rc3, train
from tests.support.tiny_training import write_shapes


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    folder = write_shapes(tmp_path_factory.mktemp("shapes"))
    saved(tiny_clip(), folder / "clip")
    content = rc3(folder)
    content["train"]["parallel"] |= {"license": "CC0-1.0"}
    evaluating = {"eval_strategy": "steps", "eval_steps": 3, "eval_batches": 1}
    return content | {
        "model": {"preset": "rc3-tiny", "overrides": SIZES | {"region_size": 16}},
        "backbone": str(folder / "clip"),
        "regions": {"grid": 2},
        "tokenizer": {"vocab_size": 420, "lowercase": False},
        "image": {"resize": 36, "crop": 36},
        "training": content["training"] | SAVING | evaluating | {"max_steps": 3},
    }


def log_of(output) -> list[dict]:
    return json.loads((output / "checkpoints" / "checkpoint-3" / "trainer_state.json").read_text())["log_history"]


def test_from_scratch_and_on(content, tmp_path):
    output = train(content, tmp_path)
    model, processor = AutoModelForPreTraining.from_pretrained(output), AutoProcessor.from_pretrained(output)
    assert type(model) is Rc3ForPreTraining and type(processor) is Rc3Processor
    assert model.config.languages == processor.languages == ["de", "en", "fr"]
    assert processor.region_size == model.config.region_size == 16
    assert model.visio_textual_probability.steps == 3
    log = log_of(output)
    assert any("relevance_loss" in entry for entry in log) and any("eval_itm_accuracy" in entry for entry in log)
    card = (output / "README.md").read_text()
    assert "Rc3ForVisualEntailment" in card and "regularised cross-lingual visio-textual" in card

    entailment = Rc3ForVisualEntailment.from_pretrained(output)
    assert all(
        torch.equal(value, model.model.state_dict()[name]) for name, value in entailment.model.state_dict().items()
    )

    source = {"from_pretrained": str(output), "overrides": {"rxvtcl_weight": 0.0}}
    further = train(content, tmp_path / "further", model=source, tokenizer=None)
    again = AutoModelForPreTraining.from_pretrained(further)
    assert (again.textual_probability.steps, again.visio_textual_probability.steps) == (6, 3)
    assert again.config.rxvtcl_weight == 0 and not any("rxvtcl_loss" in entry for entry in log_of(further))


def test_from_an_mbart_with_patches(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_mbart()
    model = {"from_pretrained": "runs/mbart-50-trimmed", "overrides": PATCHES | {"visual": "patches"}}
    slowly = content["training"] | {"max_steps": 1, "learning_rate": 1e-9}
    image = {"resize": 32, "crop": 32}
    output = train(content, tmp_path, model=model, tokenizer=None, regions=None, image=image, training=slowly)
    before = AutoModel.from_pretrained("runs/mbart-50-trimmed").decoder.layers[0].fc1.weight
    after = AutoModelForPreTraining.from_pretrained(output).model.decoder.layers[0].fc1.weight
    assert AutoProcessor.from_pretrained(output).language_tokens == ["de_DE", "en_XX", "fr_XX"]
    torch.testing.assert_close(after, before, rtol=0, atol=1e-8)


def test_regions_that_the_model_does_not_read_are_refused_before_the_training(content, tmp_path):
    saved_backbone("efficientnet", tmp_path / "efficientnet")
    complaint = r"regions of width 128, but the model takes 16: model\.overrides\.region_size must be 128"
    with pytest.raises(RecipeError, match=complaint):
        train(content, tmp_path, backbone=str(tmp_path / "efficientnet"))
    with pytest.raises(RecipeError, match="gives 49 of an image, and the model takes 36: set a smaller grid"):
        train(content, tmp_path, regions={"grid": 7})
    with pytest.raises(RecipeError, match=r"regions\.grid: its cells are features of a backbone"):
        train(content, tmp_path, backbone=None)

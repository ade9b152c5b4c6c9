"""LoRAs that PEFT saved, on any dual encoder, are models for every command."""

import json

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.utils.hotswap import hotswap_adapter
from transformers import AutoModel
from typer.testing import CliRunner

from babelens import Embedder, MlaAdapterConfig
from babelens.cli.main import app
from babelens.utils.errors import ModelFolderError, ModelMismatchError
from tests.contracts import TEXTS, drawn_images
from tests.support.tiny_native import saved, tiny_clip
from tests.support.tiny_training import write_shapes

OPTIONS = {
    "attention": {"target_modules": ["q_proj", "v_proj"]},
    "dora": {"target_modules": ["q_proj"], "use_dora": True},
    "projection saved": {"target_modules": ["k_proj"], "modules_to_save": ["text_projection"]},
}


def adapted(base, folder, **options):
    """A LoRA with weights that change the model, as `save_pretrained` writes it."""
    torch.manual_seed(0)
    model = get_peft_model(AutoModel.from_pretrained(base), LoraConfig(r=2, lora_alpha=8, **options)).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.requires_grad:
                value.add_(torch.randn_like(value) / (1 if "lora" in name else 10))
    model.save_pretrained(str(folder))
    return model


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return saved(tiny_clip(), tmp_path_factory.mktemp("clip") / "model")


@pytest.mark.parametrize("kind", OPTIONS)
def test_the_embedder_reads_what_peft_saved(kind, clip, tmp_path):
    model = adapted(clip, tmp_path / "lora", **OPTIONS[kind])
    embedder, plain = (Embedder.from_pretrained(each, device="cpu") for each in (tmp_path / "lora", clip))
    assert type(embedder.model) is type(plain.model)
    texts, images = TEXTS[:3], drawn_images(2)
    wanted = Embedder(model.base_model.model, plain.processor)
    for found, own in (
        (embedder.encode_text(texts), wanted.encode_text(texts)),
        (embedder.encode_image(images), wanted.encode_image(images)),
    ):
        np.testing.assert_allclose(found, own, atol=2e-5)
    assert np.abs(embedder.encode_text(texts) - plain.encode_text(texts)).max() > 1e-3


def test_commands_take_a_lora(clip, tmp_path):
    adapted(clip, tmp_path / "lora", **OPTIONS["attention"])
    (tmp_path / "shapes").mkdir()
    write_shapes(tmp_path / "shapes")

    def run(*words):
        done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    found = run(
        "evaluate", "captions", tmp_path / "lora", "--data", tmp_path / "shapes", "--languages", "en", "--json"
    )
    assert "t2i_r10" in found
    assert ".png" in run("search", tmp_path / "lora", "a red dot", "--images", tmp_path / "shapes", "--language", "en")


def test_a_lora_is_checked_before_it_is_pushed(clip, tmp_path):
    from babelens.publishing import folder_problems

    adapted(clip, tmp_path / "lora", **OPTIONS["attention"])
    problems = folder_problems(tmp_path / "lora")
    assert any("is a folder of this machine" in problem for problem in problems)
    settings = json.loads((tmp_path / "lora/adapter_config.json").read_text())
    (tmp_path / "lora/adapter_config.json").write_text(
        json.dumps(settings | {"base_model_name_or_path": "openai/clip-vit-base-patch32"})
    )
    card = "---\nlicense: mit\nbase_model: openai/clip-vit-base-patch32\nlibrary_name: peft\n---\n# A LoRA of CLIP\n"
    (tmp_path / "lora/README.md").write_text(card)
    left = folder_problems(tmp_path / "lora")
    assert not [problem for problem in left if "adapter" in problem], left


def test_what_does_not_fit_is_refused(clip, tmp_path):
    adapted(clip, tmp_path / "lora", **OPTIONS["attention"])
    settings = json.loads((tmp_path / "lora/adapter_config.json").read_text())
    for changed, error in (
        ({"r": 3}, ModelMismatchError),
        ({"target_modules": ["nothing"]}, ModelMismatchError),
        ({"target_modules": ["q_proj"]}, ModelMismatchError),
        ({"base_model_name_or_path": None}, ModelFolderError),
    ):
        (tmp_path / "lora/adapter_config.json").write_text(json.dumps(settings | changed))
        with pytest.raises(error, match="lora"):
            Embedder.from_pretrained(tmp_path / "lora", device="cpu")


def test_mla_says_what_it_cannot_do_with_adapters(tmp_path):
    sizes = {"vocab_size": 40, "embedding_size": 8, "acquirer_size": 4, "sep_token_id": 3}
    model = get_peft_model(tiny_clip()[0], MlaAdapterConfig(language="de", **sizes), adapter_name="de")
    model.add_adapter("fr", MlaAdapterConfig(language="fr", **sizes))
    with pytest.raises(ValueError, match="cannot be added up"):
        model.add_weighted_adapter(["de", "fr"], [0.5, 0.5], "both")
    with pytest.raises(ValueError, match="cannot be merged"):
        model.merge_and_unload()
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="only supports LORA but MLA"):  # PEFT says so
        hotswap_adapter(model, str(tmp_path / "fr"), adapter_name="de")
    model.set_adapter("fr")  # which takes the place of hotswapping: both stay loaded
    assert model.active_adapter == "fr"

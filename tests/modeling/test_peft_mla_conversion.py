"""Adapters of PEFT and the assembled MLA model convert into each other without loss."""

import pytest
import torch
from peft import PeftModel

from babelens import MlaModel
from babelens.modeling.peft_mla.conversion import load_adapter, save_adapter, to_mla_model
from babelens.utils.errors import InputError
from tests.contracts import LANGUAGES, TEXTS, drawn_images


@pytest.fixture
def mla(make_mla):
    return make_mla()


@pytest.fixture
def texts(mla):
    return dict(mla[1](text=TEXTS, language=LANGUAGES, return_tensors="pt"))


@torch.no_grad()
def text_features(model, texts):
    return model.get_text_features(**texts).pooler_output


def without_languages(model):
    return MlaModel.from_native(
        model.unload(),
        **{
            name: getattr(model.config, name)
            for name in ("acquirer_size", "vocab_size", "embedding_size", "sep_token_id")
        },
    )


def to_peft_model(model, folder):
    """The languages of a model as adapters of its native model."""
    first, *others = model.config.languages
    for language in model.config.languages:
        save_adapter(model, language, folder / language)
    parts = PeftModel.from_pretrained(model.unload(), folder / first, adapter_name=first)
    for language in others:
        parts.load_adapter(folder / language, language)
    return parts.eval()


def assert_same_weights(one, other):
    assert one.state_dict().keys() == other.state_dict().keys()
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def test_taken_apart_and_assembled_again(mla, texts, tmp_path):
    model, processor = mla
    parts = to_peft_model(model, tmp_path)
    assert list(parts.peft_config) == model.config.languages and not parts.training
    ids = {name: value for name, value in texts.items() if name != "language_ids"}
    images = processor(images=drawn_images(2), return_tensors="pt")["pixel_values"]
    rows = ["__base__", *model.config.languages]
    with torch.no_grad():
        output = parts(**ids, pixel_values=images, adapter_names=rows)
        expected = model(**texts, pixel_values=images)
    for tower in ("text_model_output", "vision_model_output"):  # before transformers normalises them in its own way
        assert torch.equal(output[tower].pooler_output, expected[tower].pooler_output)
    torch.testing.assert_close(output.text_embeds, expected.text_embeds)
    torch.testing.assert_close(output.image_embeds, expected.image_embeds)
    again = to_mla_model(parts)
    assert again.config.languages == model.config.languages
    assert_same_weights(again, model)


def test_languages_travel_as_adapters(mla, texts, tmp_path):
    """The first brings the shared embedding."""
    model, _ = mla
    for language in model.config.languages:
        save_adapter(model, language, tmp_path / language)
    copy = without_languages(model)
    for language in model.config.languages:
        assert load_adapter(copy, tmp_path / language) == language
    assert_same_weights(copy, model)
    assert torch.equal(text_features(copy.eval(), texts), text_features(model, texts))


def test_an_adapter_of_another_model_changes_nothing(mla, make_mla, tmp_path):
    model, _ = mla
    save_adapter(model, "fr", tmp_path / "fr")
    for options, message in (
        ({"acquirer_size": 4, "languages": []}, "acquirer_size=8, and this model 4"),
        ({"acquirer": "linear", "languages": []}, "acquirer='mlp', and this model 'linear'"),
        ({"languages": ["de"], "embedding_size": 12}, "another shared embedding than this model's de"),
    ):
        other, _ = make_mla(**options)
        with torch.no_grad():
            other.embedding.mla_embedding.table.weight.add_(1)
        before = {name: value.clone() for name, value in other.state_dict().items()}
        with pytest.raises(InputError, match=message):
            load_adapter(other, tmp_path / "fr")
        assert other.config.languages == options["languages"]
        assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())

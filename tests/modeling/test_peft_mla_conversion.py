"""Adapters of PEFT and the assembled MLA model convert into each other without loss."""

import pytest
import torch
from peft import PeftModel

from babelens.modeling.peft_mla import save_adapter, to_mla_model
from babelens.utils.errors import InputError
from tests.contracts import LANGUAGES, TEXTS, drawn_images
from tests.support.tiny_adapters import make_clip


@pytest.fixture
def mla(make_mla):
    return make_mla()


@pytest.fixture
def texts(mla):
    return dict(mla[1](text=TEXTS, language=LANGUAGES, return_tensors="pt"))


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


def test_an_adapter_of_another_model_is_refused(mla, tmp_path):
    save_adapter(mla[0], "fr", tmp_path / "fr")
    other = make_clip(num_hidden_layers=1)
    with pytest.raises(InputError, match="the 'fr' adapter was made for another model"):
        PeftModel.from_pretrained(other, tmp_path / "fr")
    assert other.state_dict().keys() == make_clip(num_hidden_layers=1).state_dict().keys()

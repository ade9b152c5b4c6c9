from pathlib import Path

import pytest
import torch
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import nn

from babelens.modeling.peft_mla import MlaAdapterConfig, save_adapter, to_mla_model
from babelens.utils.errors import InputError, ModelFolderError
from tests.contracts import LANGUAGES, TEXTS, drawn_images
from tests.support.tiny_adapters import SEP, VOCABULARY, make_clip

# peft's warning when transformers adds a second adapter.
pytestmark = pytest.mark.filterwarnings("ignore:Already found a `peft_config`:UserWarning")

WEIGHTS = "adapter_model.safetensors"
IDS = torch.tensor([[2, 5, 6, 9, SEP], [2, 7, SEP, 0, 0], [2, 9, 8, SEP, 0]])


def texts(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.get_text_features(input_ids=IDS).pooler_output


def language(tag: str, **options) -> MlaAdapterConfig:
    return MlaAdapterConfig(language=tag, **VOCABULARY | options)


@pytest.fixture
def german(tmp_path) -> tuple[Path, torch.Tensor]:
    model = get_peft_model(make_clip(), language("de")).eval()
    model.save_pretrained(tmp_path / "german")
    return tmp_path / "german", texts(model)


@pytest.fixture
def shared(tmp_path) -> tuple[dict[str, Path], dict[str, torch.Tensor]]:
    model = get_peft_model(make_clip(), language("de", train_embedding=False), adapter_name="de").eval()
    model.add_adapter("fr", language("fr", train_embedding=False))
    features = {}
    for name in ("de", "fr"):
        model.set_adapter(name)
        features[name] = texts(model)
    model.save_pretrained(tmp_path)
    return {name: tmp_path / name for name in ("de", "fr")}, features


def test_peft_loads_what_it_saved(german):
    folder, expected = german
    for trainable in (True, False):
        options = {"low_cpu_mem_usage": trainable, "is_trainable": trainable}
        model = PeftModel.from_pretrained(make_clip(), folder, **options)
        assert torch.equal(texts(model), expected)
        assert any(parameter.requires_grad for parameter in model.parameters()) == trainable


def test_adapters_of_one_embedding_load_together(shared):
    folders, features = shared
    model = PeftModel.from_pretrained(make_clip(), folders["de"], adapter_name="de")
    report = model.load_adapter(folders["fr"], adapter_name="fr")
    assert not (report.missing_keys or report.unexpected_keys)
    for name in ("fr", "de"):
        model.set_adapter(name)
        assert torch.equal(texts(model), features[name])


def test_an_adapter_without_an_embedding_is_refused(german):
    folder, _ = german
    weights = {name: value for name, value in load_file(folder / WEIGHTS).items() if ".mla_acquirers." in name}
    save_file(weights, folder / WEIGHTS)
    base = make_clip()
    with pytest.raises(ModelFolderError, match="no shared embedding"):
        PeftModel.from_pretrained(base, folder)
    assert not hasattr(base, "peft_config") and torch.equal(texts(base), texts(make_clip()))


def test_an_adapter_of_another_embedding_is_refused(shared):
    folders, _ = shared
    model = get_peft_model(make_clip(1), language("cs"), adapter_name="cs")
    with pytest.raises(InputError, match="another shared embedding"):
        model.load_adapter(folders["de"], adapter_name="de")


def to_peft_model(model, folder):
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


def test_taken_apart_and_assembled_again(make_mla, tmp_path):
    model, processor = make_mla()
    inputs = dict(processor(text=TEXTS, language=LANGUAGES, return_tensors="pt"))
    parts = to_peft_model(model, tmp_path)
    assert list(parts.peft_config) == model.config.languages and not parts.training
    ids = {name: value for name, value in inputs.items() if name != "language_ids"}
    images = processor(images=drawn_images(2), return_tensors="pt")["pixel_values"]
    rows = ["__base__", *model.config.languages]
    with torch.no_grad():
        output = parts(**ids, pixel_values=images, adapter_names=rows)
        expected = model(**inputs, pixel_values=images)
    for tower in ("text_model_output", "vision_model_output"):  # before transformers normalises them in its own way
        assert torch.equal(output[tower].pooler_output, expected[tower].pooler_output)
    torch.testing.assert_close(output.text_embeds, expected.text_embeds)
    torch.testing.assert_close(output.image_embeds, expected.image_embeds)
    again = to_mla_model(parts)
    assert again.config.languages == model.config.languages
    assert_same_weights(again, model)


def test_an_adapter_of_another_model_is_refused(make_mla, tmp_path):
    save_adapter(make_mla()[0], "fr", tmp_path / "fr")
    other = make_clip(num_hidden_layers=1)
    with pytest.raises(InputError, match="the 'fr' adapter was made for another model"):
        PeftModel.from_pretrained(other, tmp_path / "fr")
    assert other.state_dict().keys() == make_clip(num_hidden_layers=1).state_dict().keys()

from pathlib import Path

import pytest
import torch
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from babelens.modeling.peft_mla import MlaAdapterConfig, save_adapter, to_mla_model
from babelens.utils.errors import InputError, ModelFolderError
from tests.contracts import LANGUAGES, TEXTS, assert_equal, drawn_images
from tests.support.tiny_adapters import LENGTH, SEP, VOCABULARY, make_clip, with_adapters
from tests.support.tiny_dual_encoders import KINDS

IDS = torch.tensor([[2, 5, 6, 9, SEP, 0, 0, 0], [2, 7, SEP, 0, 0, 0, 0, 0], [2, 9, 8, 8, 4, 1, 5, SEP]])
IDS_OF_XLM_ROBERTA = {
    "input_ids": torch.tensor([[0, 5, 6, 2, 1, 1], [0, 7, 8, 9, 11, 2]]),
    "attention_mask": torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]]),
}
ENGLISH = torch.tensor([[48, 5, 6, 9, 49, 0, 0, 0], [48, 7, 49, 0, 0, 0, 0, 0], [48, 9, 8, 8, 4, 1, 5, 49]])


def language(tag: str, **options) -> MlaAdapterConfig:
    return MlaAdapterConfig(language=tag, **VOCABULARY | options)


@pytest.fixture(params=["clip", "mural"])
def make(request):
    make_mural = request.getfixturevalue("make_mural")
    return make_clip if request.param == "clip" else lambda: make_mural()[0]


@pytest.mark.parametrize("kind", ["siglip2", "align", "altclip", "vision-text-dual-encoder (xlm-roberta)"])
def test_every_kind_of_adapter_is_trained_saved_and_loaded(kind, tmp_path):
    base, processor = KINDS[kind]()
    base.requires_grad_(False)
    rows = {name: IDS_OF_XLM_ROBERTA[name] for name in ("input_ids", "attention_mask")}
    english = processor(text=["a red dot", "a blue square", "a bar"], padding="max_length", return_tensors="pt")
    with torch.no_grad():
        expected = base.get_text_features(**english).pooler_output
    vocabulary = VOCABULARY | {"vocab_size": 40, "sep_token_id": 2}
    model = with_adapters(base, "de", "fr", **vocabulary)
    model.train()
    before = model.get_text_features(**rows).pooler_output
    (before * torch.arange(before.numel()).view_as(before)).sum().backward()
    torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1).step()
    model.eval()
    with torch.no_grad():
        german = model.get_text_features(**rows).pooler_output
        alone = model.get_text_features(**{name: value[:1, :4] for name, value in rows.items()}).pooler_output
        assert not torch.allclose(german, before, atol=1e-3)
        if "siglip" not in kind:  # which pools the last state of a text that is padded to the full length
            torch.testing.assert_close(german[:1], alone, rtol=1e-4, atol=1e-4)
        with model.disable_adapter():
            assert torch.equal(model.get_text_features(**english).pooler_output, expected)
        model.set_adapter("fr")
        assert not torch.allclose(model.get_text_features(**rows).pooler_output, german, atol=1e-3)
        model.save_pretrained(tmp_path, selected_adapters=["de"])
        loaded = PeftModel.from_pretrained(KINDS[kind]()[0].requires_grad_(False), tmp_path / "de").eval()
        assert torch.equal(loaded.get_text_features(**rows).pooler_output, german)


def texts(model, ids: torch.Tensor = IDS) -> torch.Tensor:
    with torch.no_grad():
        return model.get_text_features(input_ids=ids).pooler_output


def mixed_texts(model, names: list[str], ids: torch.Tensor) -> torch.Tensor:
    """Through `forward`, for which CLIP needs images too."""
    return model(input_ids=ids, pixel_values=image(model), adapter_names=names).text_embeds


def image(model, count: int = 1) -> torch.Tensor:
    torch.manual_seed(3)
    size = model.config.vision_config.image_size
    return torch.rand(count, 3, size, size).to(model.dtype)


def train(model, steps: int = 3, names: list[str] | None = None) -> None:
    torch.manual_seed(2)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=0.01)
    model.train()
    for _ in range(steps):
        features = mixed_texts(model, names or [model.active_adapter] * len(IDS), IDS)
        (features * torch.randn_like(features)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()


def trainable(model) -> set[str]:
    names = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert all("mla_acquirers" in name or "shared_embedding" in name for name in names)
    return {
        "shared_embedding" if "shared" in name else name.split("mla_acquirers.")[1].split(".")[0] for name in names
    }


@pytest.mark.parametrize(("acquirer", "eos"), [("mlp", 49), ("linear", 2)])  # with 2, CLIP pools at the greatest id
def test_text_features_are_those_of_the_method(acquirer, eos):
    """Written out: projected table + CLIP's positions, each whole block then its acquirer, pooled at [SEP]."""
    model = with_adapters(make_clip(eos_token_id=eos), "de", acquirer=acquirer)
    tower, ids = model.get_base_model().text_model, torch.cat([IDS, torch.tensor([[2, 5, SEP, 6, SEP, 9, 9, 4]])])
    embedding, positions = tower.embeddings.shared_embedding, tower.embeddings.base_layer.position_embedding.weight
    causal = torch.full((LENGTH, LENGTH), float("-inf")).triu(1)[None, None]
    with torch.no_grad():
        states = embedding.table.weight[ids] @ embedding.projection.weight.T + embedding.projection.bias + positions
        for block in tower.encoder.layers:
            states, part = block.base_layer(states, causal), block.mla_acquirers["de"]
            if acquirer == "linear":
                states = states + states @ part.map.weight.T + part.map.bias
            else:
                hidden = (states @ part.down.weight.T + part.down.bias).clamp(min=0)
                states = states + hidden @ part.up.weight.T + part.up.bias
        pooled = tower.final_layer_norm(states)[range(4), [4, 2, 7, 2]]
        expected = pooled @ model.get_base_model().text_projection.weight.T
    torch.testing.assert_close(texts(model, ids), expected, rtol=1e-5, atol=1e-5)


def test_adapters_are_switched_disabled_and_deleted():
    model, plain = with_adapters(make_clip(), "de", "fr", "cs"), texts(make_clip())
    german = texts(model)
    model.set_adapter("fr")
    french = texts(model)
    assert not torch.equal(german, french)
    model.delete_adapter("cs")
    assert torch.equal(texts(model), french)
    with pytest.warns(UserWarning, match="fr was active"):
        model.delete_adapter("fr")
    assert torch.equal(texts(model), german)
    with model.disable_adapter():
        assert torch.equal(texts(model), plain)
    model.delete_adapter("de")
    assert torch.equal(texts(model), plain)


def test_rows_of_a_batch_may_be_in_different_languages(make):
    model, plain = with_adapters(make(), "de", "fr"), make()
    ids = torch.cat([IDS[:1], ENGLISH[:1], IDS[1:2], IDS[2:], ENGLISH[1:2]])
    names = ["de", "__base__", "fr", "de", "__base__"]
    with torch.no_grad():
        mixed = mixed_texts(model, names, ids)
        for row, name in enumerate(names):
            alone = mixed_texts(model, [name], ids[row : row + 1])
            torch.testing.assert_close(mixed[row], alone[0], rtol=1e-4, atol=1e-5)
        expected = plain(input_ids=ids, pixel_values=image(plain)).text_embeds
        assert torch.equal(mixed_texts(model, ["__base__"] * 5, ids), expected)


def test_a_mixed_batch_trains_the_adapters_that_it_names():
    model = with_adapters(make_clip(), "de", "fr", "cs")
    model.set_requires_grad(["de", "fr"])
    assert trainable(model) == {"de", "fr", "shared_embedding"}
    model.train()
    mixed_texts(model, ["de", "fr", "__base__"], torch.cat([IDS[:2], ENGLISH[2:]])).sum().backward()
    moved = {
        name for name, parameter in model.named_parameters() if parameter.grad is not None and parameter.grad.any()
    }
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == moved


def test_nothing_is_forgotten(make):
    """English, images and the first language stay to the bit after another language was acquired."""
    plain, model = make(), with_adapters(make(), "de")
    plain.requires_grad_(False)  # as in the other: torch may multiply weights that are trained in another way
    train(model)
    german = texts(model)
    model.add_adapter("fr", language("fr", train_embedding=False))
    model.set_adapter("fr")
    french = texts(model)
    train(model)
    assert not torch.equal(texts(model), french)
    model.set_adapter("de")
    assert torch.equal(texts(model), german)
    with torch.no_grad():
        images, expected = (m.get_image_features(pixel_values=image(m, 2)).pooler_output for m in (model, plain))
    assert torch.equal(images, expected)
    with model.disable_adapter():
        assert torch.equal(texts(model, ENGLISH), texts(plain, ENGLISH))
    weights = model.unload().state_dict()
    assert all(torch.equal(weights[name], value) for name, value in plain.state_dict().items())


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
    weights = {
        name: value
        for name, value in load_file(folder / "adapter_model.safetensors").items()
        if ".mla_acquirers." in name
    }
    save_file(weights, folder / "adapter_model.safetensors")
    base = make_clip()
    with pytest.raises(ModelFolderError, match="no shared embedding"):
        PeftModel.from_pretrained(base, folder)
    assert not hasattr(base, "peft_config") and torch.equal(texts(base), texts(make_clip()))


def test_an_adapter_of_another_embedding_is_refused(shared):
    folders, _ = shared
    model = get_peft_model(make_clip(1), language("cs"), adapter_name="cs")
    with pytest.raises(InputError, match="another shared embedding"):
        model.load_adapter(folders["de"], adapter_name="de")


def test_taken_apart_and_assembled_again(make_mla, tmp_path):
    model, processor = make_mla()
    inputs = dict(processor(text=TEXTS, language=LANGUAGES, return_tensors="pt"))
    first, *others = model.config.languages
    for language in model.config.languages:
        save_adapter(model, language, tmp_path / language)
    parts = PeftModel.from_pretrained(model.unload(), tmp_path / first, adapter_name=first)
    for language in others:
        parts.load_adapter(tmp_path / language, language)
    parts.eval()
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
    assert_equal(again.state_dict(), model.state_dict())


def test_an_adapter_of_another_model_is_refused(make_mla, tmp_path):
    save_adapter(make_mla()[0], "fr", tmp_path / "fr")
    other = make_clip(num_hidden_layers=1)
    with pytest.raises(InputError, match="the 'fr' adapter was made for another model"):
        PeftModel.from_pretrained(other, tmp_path / "fr")
    assert other.state_dict().keys() == make_clip(num_hidden_layers=1).state_dict().keys()

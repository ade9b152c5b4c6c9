import json
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, MBartConfig, MBartModel

from babelens import MuralModel, MuralProcessor
from babelens.modeling.tower_loading import declared_pooling
from babelens.trainers.frozen_features import TowerFeatures
from babelens.utils.errors import ModelFolderError, ModelKindError
from tests.contracts import drawn_images
from tests.support.tiny_backbones import saved_backbone
from tests.support.tiny_native import tiny_clip
from tests.support.tiny_text_encoders import TEXTS, saved_encoder


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vit")
    saved_backbone("vit", folder)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    saved_encoder("bert", folder)
    return folder


@pytest.mark.parametrize("name", ["convnext", "efficientnet", "dinov2", "resnet", "siglip", "swin"])
def test_images_are_the_features_of_the_backbone(name: str, bert: Path, tmp_path: Path) -> None:
    backbone, image_processor = saved_backbone(name, tmp_path / "image")
    model = MuralModel.from_towers(tmp_path / "image", bert).eval()
    processor = MuralProcessor.from_towers(tmp_path / "image", bert, model.config)
    images = drawn_images(3)
    pixels = processor(images=images, return_tensors="pt")["pixel_values"]
    own = image_processor(images, return_tensors="pt")["pixel_values"]
    assert torch.equal(pixels, own)
    with torch.no_grad():
        expected = backbone(pixel_values=own)
        features = model.get_image_features(pixel_values=pixels).pooler_output
    assert torch.equal(features, expected.pooler_output.flatten(1))
    assert model.config.projection_dim == features.shape[1]


POOLED = [
    *(("modernbert", "mean"), ("mt5", "eos"), ("distilbert", "cls")),
    *(("clip_text_model", "pooler"), ("siglip_text_model", "pooler")),
]


@pytest.mark.parametrize(("name", "pooling"), POOLED)
def test_texts_are_pooled_as_asked(name: str, pooling: str, vit: Path, tmp_path: Path) -> None:
    encoder = saved_encoder(name, tmp_path / "text")
    model = MuralModel.from_towers(vit, tmp_path / "text", projection_dim=8, text_pooling=pooling).eval()
    processor = MuralProcessor.from_towers(vit, tmp_path / "text", model.config)
    inputs = processor(text=TEXTS[:3], language="en", return_tensors="pt")
    with torch.no_grad():
        features = TowerFeatures(model).get_text_features(**inputs).pooler_output
        output = encoder(**inputs)
        embeds = model.get_text_features(**inputs).pooler_output
        from_features = model.get_text_features(text_features=features).pooler_output
    assert torch.equal(embeds, from_features)
    if pooling == "pooler":
        assert torch.equal(features, output.pooler_output)
        return
    for k, length in enumerate(inputs["attention_mask"].sum(1).tolist()):
        states = output.last_hidden_state[k, :length]
        expected = {"mean": states.mean(0), "eos": states[-1], "cls": states[0]}[pooling]
        torch.testing.assert_close(features[k], expected)


def test_a_configuration_names_towers_and_not_their_places(vit: Path, bert: Path, tmp_path: Path) -> None:
    MuralModel.from_towers(vit, bert).save_pretrained(tmp_path)
    told = (tmp_path / "config.json").read_text(encoding="utf-8")
    assert f'"{bert.name}"' in told and f'"{vit.name}"' in told and str(bert.parent) not in told


def test_text_features_are_normalized_before_the_head(vit: Path, bert: Path) -> None:
    made = [MuralModel.from_towers(vit, bert, projection_dim=8, text_layer_norm=norm).eval() for norm in (False, True)]
    made[1].load_state_dict(made[0].state_dict())  # the normalization has no weights
    features = torch.randn(3, made[0].config.text_config.hidden_size) * 7 + 2
    normal = (features - features.mean(1, keepdim=True)) / features.std(1, correction=0, keepdim=True)
    with torch.no_grad():
        expected = made[0].get_text_features(text_features=normal).pooler_output
        found = made[1].get_text_features(text_features=features).pooler_output
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_towers_are_taken_out_of_a_dual_encoder(tmp_path: Path) -> None:
    clip, _ = tiny_clip()
    clip.save_pretrained(tmp_path)
    model = MuralModel.from_towers(tmp_path, tmp_path, text_pooling="pooler").eval()
    ids = torch.tensor([[1, 5, 6, 3]])
    with torch.no_grad():
        own = clip.text_model(input_ids=ids).pooler_output
        assert torch.equal(TowerFeatures(model).get_text_features(ids).pooler_output, own)


def test_one_text_head_for_both_tasks(vit: Path, bert: Path) -> None:
    model = MuralModel.from_towers(vit, bert, shared_text_head=True).eval()
    assert list(model.text_heads) == ["image_text"]
    ids = torch.tensor([[2, 5, 6, 3]])
    by_task = [model.get_text_features(ids, task=task).pooler_output for task in ("image_text", "text_text")]
    assert torch.equal(*by_task)


def test_what_is_no_tower_is_refused(vit: Path, bert: Path, tmp_path: Path) -> None:
    gpt2 = GPT2Model(GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=1))
    mbart = MBartModel(MBartConfig(vocab_size=20, d_model=16, encoder_layers=1, decoder_layers=1))
    decoder = BertModel(BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2))
    decoder.config.is_decoder = True
    for text in (gpt2, mbart, decoder, vit):
        with pytest.raises(ModelKindError, match="expected a text encoder"):
            MuralModel.from_towers(vit, text)
    with pytest.raises(ModelKindError, match="does not read images"):
        MuralModel.from_towers(bert, bert)
    for name in ("mt5", "distilbert", "modernbert"):
        saved_encoder(name, tmp_path / name)
        with pytest.raises(ModelKindError, match="no pooling layer"):
            MuralModel.from_towers(vit, tmp_path / name, text_pooling="pooler")


OLD = dict.fromkeys(
    ("pooling_mode_cls_token", "pooling_mode_mean_tokens", "pooling_mode_max_tokens", "pooling_mode_lasttoken"), False
)


def stating(folder, settings):
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(settings if isinstance(settings, str) else json.dumps(settings))
    return folder


@pytest.mark.parametrize(
    ("settings", "pooling"),
    [(OLD | {"pooling_mode_lasttoken": True}, "eos"), ({"pooling_mode": ["cls"]}, "cls"), (None, None)],
)
def test_a_folder_states_its_pooling_or_none(tmp_path, settings, pooling):
    assert declared_pooling(stating(tmp_path, settings) if settings else tmp_path) == pooling


@pytest.mark.parametrize(
    ("settings", "error", "word"),
    [
        (OLD | {"pooling_mode_max_tokens": True}, ModelKindError, "max .*choose text_pooling"),
        (OLD | {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, ModelKindError, "cls and mean"),
        ("[]", ModelFolderError, "1_Pooling"),
    ],
)
def test_other_poolings_and_damaged_files_are_refused(tmp_path, settings, error, word):
    with pytest.raises(error, match=word):
        declared_pooling(stating(tmp_path, settings))

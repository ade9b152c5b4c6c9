"""Pretrained backbones: SMALR, LIWE and RC3's regions have their features, of images as they take them."""

import numpy as np
import pytest
import torch
from transformers import AutoImageProcessor

from babelens import LiweModel, SmalrModel
from babelens.inference.backbones import RegionExtractor, check_backbone, load_backbone
from babelens.utils.pretrained import load_processor
from tests.contracts import drawn_images
from tests.support.tiny_backbones import BACKBONES, saved_backbone

WORDS = {"languages": ["en"], "vocabulary_sizes": [9], "specific_words": 4, "latent_tokens": 4, "hidden_size": 16}
MODELS = {SmalrModel: WORDS | {"image_hidden_size": 16}, LiweModel: {"vocab_size": 9, "hidden_size": 16}}


@pytest.mark.parametrize("name", BACKBONES)
@torch.no_grad()
def test_features_are_the_backbones_of_images_as_it_takes_them(name, tmp_path):
    plain, own = saved_backbone(name, tmp_path)
    backbone, image_processor = load_backbone(tmp_path), load_processor(AutoImageProcessor, tmp_path)
    assert image_processor.to_dict() == own.to_dict()
    check_backbone(backbone, image_processor, name)
    pixels = own(drawn_images(3), return_tensors="pt")["pixel_values"]
    assert torch.equal(image_processor(drawn_images(3), return_tensors="pt")["pixel_values"], pixels)
    expected = plain(pixel_values=pixels).pooler_output.flatten(1)
    assert expected.std(0).max() > 1e-4  # it tells images apart
    for kind, options in MODELS.items():
        model = kind.from_backbone(backbone, **options).eval()
        states = model.get_image_features(pixel_values=pixels, output_hidden_states=True).hidden_states
        assert torch.equal(states[0], expected)
        assert all(
            torch.equal(value, plain.state_dict()[key]) for key, value in model.vision_model.state_dict().items()
        )


@pytest.mark.parametrize("name", BACKBONES)
@torch.no_grad()
def test_any_backbone_has_regions(name, tmp_path):
    plain, own = saved_backbone(name, tmp_path)
    extractor = RegionExtractor.from_pretrained(tmp_path, grid=1)
    states = plain(**own(drawn_images(2), return_tensors="pt")).last_hidden_state
    prefix = {"vit": 1, "dinov2": 1, "clip": 1}.get(name, 0)
    expected = states.mean((2, 3)) if states.ndim == 4 else states[:, prefix:].mean(1)
    found = extractor(drawn_images(2))
    assert found.shape == (2, *extractor.shape()) and extractor.shape()[0] == 1
    np.testing.assert_allclose(found[:, 0], expected.numpy(), rtol=1e-4, atol=1e-5)
    assert RegionExtractor.from_pretrained(tmp_path, grid=2).shape() == (4, expected.shape[1])


def test_a_dual_encoder_lends_its_tower_and_its_image_processor(clip_folder):
    backbone = load_backbone(clip_folder)
    check_backbone(backbone, load_processor(AutoImageProcessor, clip_folder), "clip")
    assert type(LiweModel.from_backbone(backbone, **MODELS[LiweModel]).vision_model) is type(backbone)

"""Regions computed from images: equal to the models' own, in any batch, and cached."""

import numpy as np
import pytest
import torch
from transformers import (
    DetrConfig,
    DetrForObjectDetection,
    ResNetConfig,
    ResNetModel,
    RTDetrConfig,
    RTDetrForObjectDetection,
    RTDetrResNetConfig,
    ViTConfig,
    ViTModel,
)

from babelens.inference.backbones import RegionExtractor
from babelens.processing.augmentation import ImageAugmentation
from babelens.processing.processing_rc3 import square_image_processor
from tests.contracts import drawn_images

IMAGE_PROCESSOR = square_image_processor(64)
PAIRS_OF_THREE = [(0, 1), (0, 2), (1, 2)]
SMALL_RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
SMALL_TRANSFORMER = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "initializer_range": 0.5,
}


def detr() -> DetrForObjectDetection:
    layers = {f"{part}_{what}": 2 for part in ("encoder", "decoder") for what in ("layers", "attention_heads")}
    config = DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=ResNetConfig(**SMALL_RESNET, out_features=["stage2"]),
        d_model=16,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        num_queries=12,
        num_labels=5,
        init_std=0.5,  # so that queries differ
        **layers,
    )
    return DetrForObjectDetection(config)


def rt_detr() -> RTDetrForObjectDetection:
    backbone = RTDetrResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 8, 16, 16],
        depths=[1] * 4,
        layer_type="basic",
        out_features=["stage3", "stage4"],
    )
    config = RTDetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        encoder_hidden_dim=16,
        encoder_in_channels=[16, 16],
        feat_strides=[16, 32],
        encode_proj_layers=[1],
        encoder_ffn_dim=16,
        encoder_attention_heads=2,
        decoder_in_channels=[16, 16],
        d_model=16,
        num_queries=12,
        decoder_ffn_dim=16,
        num_feature_levels=2,
        decoder_layers=2,
        decoder_attention_heads=2,
        decoder_n_points=2,
        num_labels=5,
    )
    return RTDetrForObjectDetection(config)


def pixels(count: int) -> dict[str, torch.Tensor]:
    return dict(IMAGE_PROCESSOR(drawn_images(count), return_tensors="pt"))


def made(build):
    torch.manual_seed(0)
    return build().eval()


# ---- Detectors ----


@pytest.mark.parametrize("build", [detr, rt_detr])
@torch.no_grad()
def test_regions_are_the_surest_queries_states(build):
    model = made(build)
    found = RegionExtractor(model, IMAGE_PROCESSOR, max_regions=4, batch_size=5)(drawn_images(5))
    output = model(**pixels(5))
    assert found.shape == (5, 4, 16) and found.dtype == np.float32
    for row in range(5):
        logits = output.logits[row].double()
        weights = (
            logits.exp() / logits.exp().sum(-1, keepdim=True) if build is not rt_detr else 1 / (1 + (-logits).exp())
        )
        score = weights[:, :5].max(-1).values
        order = sorted(range(12), key=lambda query: -score[query].item())[:4]
        states = output.last_hidden_state[row, -12:]
        np.testing.assert_array_equal(found[row], states[order].numpy())


# ---- Encoders ----


def resnet() -> ResNetModel:
    return ResNetModel(ResNetConfig(**SMALL_RESNET))  # 64 pixels -> 8 x 8


def vit() -> ViTModel:
    return ViTModel(ViTConfig(**SMALL_TRANSFORMER, image_size=64, patch_size=8))


@pytest.mark.parametrize("build", [resnet, vit])
@torch.no_grad()
def test_regions_are_the_means_of_cells(build):
    model = made(build)
    states = model(**pixels(3)).last_hidden_state
    maps = states if build is resnet else states[:, 1:].transpose(1, 2).reshape(3, 16, 8, 8)
    found = RegionExtractor(model, IMAGE_PROCESSOR, grid=4, batch_size=2)(drawn_images(3))
    assert found.shape == (3, 16, 16)
    for cell in range(16):
        top, left = 2 * (cell // 4), 2 * (cell % 4)
        expected = maps[:, :, top : top + 2, left : left + 2].mean((2, 3))
        np.testing.assert_allclose(found[:, cell], expected.numpy(), rtol=1e-4, atol=1e-5)


# ---- Kept ----


def test_versions_are_the_image_and_changed_ones_always_the_same():
    extractor = RegionExtractor(made(resnet), IMAGE_PROCESSOR, grid=2, batch_size=2)
    augmentation = ImageAugmentation(color_jitter=0.4, rotation=15)
    found = extractor.versions(drawn_images(3), augmentation, augmented=2)
    assert found.shape == (3, 3, 4, 16)
    np.testing.assert_array_equal(found[:, 0], extractor(drawn_images(3)))
    np.testing.assert_array_equal(extractor.versions(drawn_images(3), augmentation, augmented=2), found)
    assert all(
        not np.allclose(found[row, one], found[row, other]) for row in range(3) for one, other in PAIRS_OF_THREE
    )
    alone = extractor(drawn_images(3)[2:], [5], augmentation)  # an image is changed by its own seed
    np.testing.assert_allclose(alone[0], found[2, 2], atol=1e-6)

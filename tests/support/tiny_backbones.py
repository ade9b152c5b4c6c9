"""Vision backbones of transformers that people bring, tiny and untrained, each as a folder with its own image
processor."""

from pathlib import Path
from typing import Any

import torch
from transformers import (
    BitImageProcessorPil,
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    CLIPVisionModel,
    ConvNextConfig,
    ConvNextImageProcessorPil,
    ConvNextModel,
    Dinov2Config,
    Dinov2Model,
    EfficientNetConfig,
    EfficientNetImageProcessorPil,
    EfficientNetModel,
    PreTrainedModel,
    ResNetConfig,
    ResNetModel,
    SiglipImageProcessorPil,
    SiglipVisionConfig,
    SiglipVisionModel,
    SwinConfig,
    SwinModel,
    ViTConfig,
    ViTImageProcessorPil,
    ViTModel,
)

from tests.contracts import drawn_images

_LAYERS = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
_TOWER = _LAYERS | {"intermediate_size": 32, "image_size": 32, "patch_size": 8}
# Wider than usual, so that what an untrained tower computes depends on its image.
_WIDE: dict[str, Any] = {"initializer_range": 0.5}
_SQUARE = {"height": 32, "width": 32}
_CONVOLUTIONS: dict[str, Any] = {"hidden_sizes": [8, 16], "depths": [1, 1]}

BACKBONES = {
    "vit": (lambda: ViTModel(ViTConfig(**_TOWER, **_WIDE)), ViTImageProcessorPil(size=_SQUARE)),
    "siglip": (lambda: SiglipVisionModel(SiglipVisionConfig(**_TOWER)), SiglipImageProcessorPil(size=_SQUARE)),
    "dinov2": (
        lambda: Dinov2Model(Dinov2Config(**_LAYERS, **_WIDE, mlp_ratio=2, image_size=28, patch_size=14)),
        BitImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 28, "width": 28}),
    ),
    "convnext": (
        lambda: ConvNextModel(ConvNextConfig(**_CONVOLUTIONS, **_WIDE, num_stages=2)),
        ConvNextImageProcessorPil(size={"shortest_edge": 32}),
    ),
    "swin": (
        lambda: SwinModel(
            SwinConfig(
                embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4, image_size=32, patch_size=4, **_WIDE
            )
        ),
        ViTImageProcessorPil(size=_SQUARE),
    ),
    "efficientnet": (
        lambda: EfficientNetModel(
            EfficientNetConfig(width_coefficient=0.1, depth_coefficient=0.1, hidden_dim=128, **_WIDE)
        ),
        EfficientNetImageProcessorPil(size=_SQUARE),
    ),
    "resnet": (
        lambda: ResNetModel(ResNetConfig(**_CONVOLUTIONS, embedding_size=8, layer_type="basic")),
        ConvNextImageProcessorPil(size={"shortest_edge": 32}),
    ),
    "clip": (
        lambda: CLIPVisionModel(CLIPVisionConfig(**_TOWER, initializer_factor=10.0)),
        CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=_SQUARE),
    ),
}


def saved_backbone(name: str, folder: Path) -> tuple[PreTrainedModel, Any]:
    """Saves a backbone with its image processor, and returns both."""
    build, image_processor = BACKBONES[name]
    torch.manual_seed(0)
    model = build()
    for norm in (module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)):
        norm.momentum = 1.0
    with torch.no_grad():  # the statistics of images, without which deep convolutions compute zeros
        model.train()(**image_processor(drawn_images(16), return_tensors="pt"))
    model.eval()
    for part in (model, image_processor):
        part.save_pretrained(folder)
    return model, image_processor

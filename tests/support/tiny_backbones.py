from pathlib import Path
from typing import Any

import torch
import transformers

from tests.contracts import drawn_images
from tests.support.made_once import settle_batch_norm

_LAYERS = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
_TOWER = _LAYERS | {"intermediate_size": 32, "image_size": 32, "patch_size": 8}
# Wider than usual, so an untrained tower's outputs depend on its image.
_WIDE: dict[str, Any] = {"initializer_range": 0.5}
_CONVOLUTIONS: dict[str, Any] = {"hidden_sizes": [8, 16], "depths": [1, 1]}
_SWIN = {"embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 4, "image_size": 32, "patch_size": 4}
_EFFICIENT = {"width_coefficient": 0.1, "depth_coefficient": 0.1, "hidden_dim": 128}
_SQUARE = {"height": 32, "width": 32}
_SHORTEST = {"shortest_edge": 32}
_CROPPED = transformers.BitImageProcessorPil(size=_SHORTEST, crop_size={"height": 28, "width": 28})

# By name: model_type, settings, image processor.
BACKBONES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "vit": ("vit", _TOWER | _WIDE, transformers.ViTImageProcessorPil(size=_SQUARE)),
    "siglip": ("siglip_vision_model", _TOWER, transformers.SiglipImageProcessorPil(size=_SQUARE)),
    "dinov2": ("dinov2", _LAYERS | _WIDE | {"mlp_ratio": 2, "image_size": 28, "patch_size": 14}, _CROPPED),
    "convnext": (
        "convnext",
        _CONVOLUTIONS | _WIDE | {"num_stages": 2},
        transformers.ConvNextImageProcessorPil(size=_SHORTEST),
    ),
    "swin": ("swin", _SWIN | _WIDE, transformers.ViTImageProcessorPil(size=_SQUARE)),
    "efficientnet": ("efficientnet", _EFFICIENT | _WIDE, transformers.EfficientNetImageProcessorPil(size=_SQUARE)),
    "resnet": (
        "resnet",
        _CONVOLUTIONS | {"embedding_size": 8, "layer_type": "basic"},
        transformers.ConvNextImageProcessorPil(size=_SHORTEST),
    ),
    "clip": (
        "clip_vision_model",
        _TOWER | {"initializer_factor": 10.0},
        transformers.CLIPImageProcessorPil(size=_SHORTEST, crop_size=_SQUARE),
    ),
}


def saved_backbone(name: str, folder: Path) -> tuple[transformers.PreTrainedModel, Any]:
    model_type, settings, image_processor = BACKBONES[name]
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(model_type, **settings))
    settle_batch_norm(model, image_processor(drawn_images(16), return_tensors="pt")["pixel_values"])
    for part in (model, image_processor):
        part.save_pretrained(folder)
    return model, image_processor

"""Backbones: image encoders that compute features for other models. Any vision model serves."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModel, PreTrainedModel
from transformers.image_processing_utils import BaseImageProcessor

from ..configuration.configuration_two_tower import image_width
from ..configuration.errors import BabelensError, ModelFolderError, ModelKindError, ModelMismatchError, first_line
from ..configuration.pretrained import load_model, load_processor
from ..modeling.towers import pool_image, vision_tower

# Files in which an image processor is saved, by itself or as a part of a processor.
_IMAGE_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")


def load_backbone(folder_or_repo: str | Path, **loading: Any) -> PreTrainedModel:
    """Loads a vision model: a model of images alone, or the vision tower of a dual encoder or of an MLA model.

    Args:
        folder_or_repo: a folder, or a repository on the Hub.
        loading: what `load_model` takes.

    Raises:
        ModelFolderError: as `load_model`.
        ModelKindError: when the model has no vision tower.
    """
    model = load_model(AutoModel, folder_or_repo, **loading)
    try:
        return vision_tower(model)
    except ModelKindError as error:
        raise ModelKindError(f"{folder_or_repo} has no vision model") from error


def load_image_processor(folder_or_repo: str | Path, **loading: Any) -> BaseImageProcessor:
    """Loads the image processor of a backbone, by which its images have to be prepared.

    Args:
        folder_or_repo: a folder, or a repository on the Hub.
        loading: what `load_processor` takes.

    Raises:
        ModelFolderError: as `load_processor`, and when there is no image processor beside the model.
    """
    folder = Path(folder_or_repo)
    if folder.is_dir() and not any((folder / name).is_file() for name in _IMAGE_PROCESSOR_FILES):
        raise ModelFolderError(
            f"{folder} has no image processor, and it is not known how its images are prepared: save the model's own "
            f"there, as {_IMAGE_PROCESSOR_FILES[0]}"
        )
    return load_processor(AutoImageProcessor, folder_or_repo, **loading)


def check_backbone(backbone: PreTrainedModel, image_processor: BaseImageProcessor, called: str | Path) -> None:
    """Checks that a backbone takes the images that an image processor prepares, by a black one.

    Args:
        backbone: the vision model, in evaluation mode.
        image_processor: what prepares its images.
        called: how errors name the backbone.

    Raises:
        ModelMismatchError: if it does not, or its features are not as wide as its configuration states.
    """
    pixels = black_image(image_processor)
    with fitting(pixels, called), torch.inference_mode():
        width = pool_image(backbone(pixel_values=pixels.to(backbone.device, backbone.dtype))).shape[1]
    stated = image_width(backbone.config)
    if width != stated:
        raise ModelMismatchError(f"{called}: its features have the width {width}, its configuration states {stated}")


def black_image(image_processor: BaseImageProcessor) -> torch.Tensor:
    """A black square as an image processor prepares it, [1, 3, H, W]."""
    return image_processor(Image.new("RGB", (64, 64)), return_tensors="pt")["pixel_values"]


@contextmanager
def fitting(pixels: torch.Tensor, called: str | Path) -> Iterator[None]:
    """Turns an error while a backbone encodes pixels into a `ModelMismatchError` that names their size."""
    try:
        yield
    except BabelensError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        size = " x ".join(str(side) for side in pixels.shape[-2:])
        raise ModelMismatchError(
            f"{called} does not take the images that its image processor prepares, of {size} pixels: "
            f"{first_line(error)}; set the sizes of images to those that it takes"
        ) from error

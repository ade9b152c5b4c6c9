"""Regions computed from images for which none are published, by an object detector or an image encoder.

The regions of the RC3 paper come from a Faster R-CNN, which is not among transformers' models. Here the feature of a
detected object is the decoder state of the query that found it, in a detector such as DETR (Carion et al. 2020). An
image encoder gives a grid of regions instead: the feature of each cell is the mean of the encoder's last features
there. The grid is our choice, for images of single objects.

`trainers/frozen_features.py` keeps regions that were computed once, by the weights and settings of their extractor:

    frozen_features(lambda: extractor(images), weights=extractor.weights, settings=extractor.settings, items=...)
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d
from transformers import AutoImageProcessor, AutoModelForObjectDetection, BatchFeature, PreTrainedModel
from transformers.image_processing_utils import BaseImageProcessor

from ..processing.image_augmentation import ImageAugmentation, TrainingTransform
from ..processing.images import as_images
from ..utils.errors import InputError, ModelKindError
from ..utils.identity import code_of, settings_of
from ..utils.pretrained import load_model, load_processor
from .backbones import black_image, fitting, load_backbone, load_image_processor

# A model's inputs and outputs for n images -> the features of their regions [n, R, d].
Pooling = Callable[[BatchFeature, Any], Tensor]


class RegionExtractor:
    """Computes region features of images, in batches, on the device of the model.

    It is made by `from_detector` or `from_encoder`.

    Attributes:
        settings: all that the features depend on, other than the weights: the model's configuration, its image
            processor, and how its outputs are pooled.
        can_augment: whether images may be augmented; those of a detector cannot, as they have different sizes.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        image_processor: BaseImageProcessor,
        pooling: Pooling,
        pooling_settings: dict[str, int],
        batch_size: int,
        *,
        can_augment: bool = False,
    ) -> None:
        self.model, self.image_processor, self.pooling = model.eval(), image_processor, pooling
        self.batch_size, self.can_augment = batch_size, can_augment
        parts = (
            settings_of(model.config),
            image_processor.to_dict(),
            pooling_settings,
            code_of(model, image_processor),
        )
        self.settings = json.dumps(parts, sort_keys=True, default=str)

    @classmethod
    def from_detector(
        cls,
        model: PreTrainedModel,
        image_processor: BaseImageProcessor,
        *,
        max_regions: int = 36,
        batch_size: int = 16,
    ) -> Self:
        """Uses the queries with the highest probability of an object as regions, the highest first.

        Args:
            model: a `...ForObjectDetection` of DETR's kind: DETR, Conditional and Deformable DETR, RT-DETR, YOLOS.
            max_regions: the number of regions of an image; a model with fewer queries gives all of them.
        """

        def pool(inputs: BatchFeature, output: Any) -> Tensor:
            return query_regions(output, model.config.num_labels, max_regions)

        return cls(model, image_processor, pool, {"max_regions": max_regions}, batch_size)

    @classmethod
    def from_encoder(
        cls, model: PreTrainedModel, image_processor: BaseImageProcessor, *, grid: int = 6, batch_size: int = 16
    ) -> Self:
        """Uses a grid of `grid` x `grid` features of an image encoder as regions, row by row from the top left.

        Args:
            model: whose `last_hidden_state` is a map [n, d, h, w] (ResNet, ConvNeXt, EfficientNet) or the states of
                square patches [n, prefix + h * w, d] (ViT, CLIP, SigLIP, DINOv2), the prefix being [CLS] and such, or
                of patches that are merged from stage to stage [n, h * w, d] (Swin).
            image_processor: the model's.
            grid: number of cells on each side.
            batch_size: number of images that are encoded at a time.
        """

        def pool(inputs: BatchFeature, output: Any) -> Tensor:
            return grid_regions(output.last_hidden_state, inputs["pixel_values"].shape[-2:], model.config, grid)

        return cls(model, image_processor, pool, {"grid": grid}, batch_size, can_augment=True)

    @classmethod
    def from_pretrained(
        cls, folder_or_repo: str | Path, *, grid: int | None = None, max_regions: int = 36, **loading: Any
    ) -> Self:
        """Loads a detector or, with `grid`, an image encoder, also that of a dual encoder, from a folder or the
        Hub."""
        if grid is not None:
            backbone = load_backbone(folder_or_repo, **loading)
            extractor = cls.from_encoder(backbone, load_image_processor(folder_or_repo, **loading), grid=grid)
            with fitting(black_image(extractor.image_processor), folder_or_repo):
                extractor.shape()
            return extractor
        images = load_processor(AutoImageProcessor, folder_or_repo, **loading)
        try:
            detector = load_model(AutoModelForObjectDetection, folder_or_repo, **loading)
        except ModelKindError as error:
            raise InputError(
                f"{folder_or_repo} is no object detector; give a grid to use features of an image encoder as regions"
            ) from error
        return cls.from_detector(detector, images, max_regions=max_regions)

    @property
    def weights(self) -> dict[str, Tensor]:
        """The weights of the model, by name."""
        return self.model.state_dict()

    def shape(self) -> tuple[int, int]:
        """The number of regions and the width of their features, R and d, of a black image."""
        regions, width = self([Image.new("RGB", (64, 64))]).shape[1:]
        return regions, width

    def __call__(
        self,
        images: Sequence[Any],
        seeds: Sequence[int] | None = None,
        augmentation: ImageAugmentation | None = None,
    ) -> np.ndarray:
        """Computes the regions of N images in any form (`as_images`), float32 [N, R, d]; a batch is opened at a time.

        Args:
            seeds: the seed of the random changes that `augmentation` makes to each image, [N].
            augmentation: how images are changed before; by default they are not. A detector allows none.
        """
        if not len(images):
            raise InputError("no images")
        transform = None
        if augmentation is not None and seeds is not None:
            if not self.can_augment:
                raise InputError("the images of a detector cannot be augmented, because they have different sizes")
            transform = TrainingTransform(self.image_processor, augmentation)
        batches = []
        for start in range(0, len(images), self.batch_size):
            batch = list(images[start : start + self.batch_size])
            if transform is None or seeds is None:
                inputs = self.image_processor(as_images(batch), return_tensors="pt")
            else:
                inputs = BatchFeature({"pixel_values": transform(batch, list(seeds[start : start + len(batch)]))})
            inputs = inputs.to(self.model.device)
            inputs["pixel_values"] = inputs["pixel_values"].to(self.model.dtype)
            with torch.inference_mode():
                batches.append(self.pooling(inputs, self.model(**inputs)).float().cpu().numpy())
        return np.concatenate(batches)

    def versions(self, images: Sequence[Any], augmentation: ImageAugmentation, augmented: int) -> np.ndarray:
        """Computes the regions of each image, the image itself first, and those of `augmented` copies of it, changed
        in the same way at every call: float32 [N, 1 + augmented, R, d]."""
        count = len(images)
        changed = [
            self(images, range(version * count, (version + 1) * count), augmentation) for version in range(augmented)
        ]
        return np.stack([self(images), *changed], axis=1)


def query_regions(output: Any, num_labels: int, max_regions: int) -> Tensor:
    """The states of the queries with the highest probability of an object, [n, R, d].

    Args:
        output: the output of a detector: `logits` [n, Q, labels] of its queries, and `last_hidden_state` [n, ..., d],
            which ends in the states of the queries (YOLOS has those of the patches before them).
        num_labels: the number of the detector's labels. With one more logit, which stands for no object, the logits
            are normalised by a softmax (DETR, YOLOS); otherwise each by a sigmoid.
        max_regions: the largest R.
    """
    logits, states = getattr(output, "logits", None), getattr(output, "last_hidden_state", None)
    if logits is None or states is None or logits.ndim != 3 or states.ndim != 3:
        raise InputError(f"a {type(output).__name__} has no logits and states of queries: no detector of DETR's kind")
    has_no_object = logits.shape[-1] == num_labels + 1
    scores = logits.softmax(-1)[..., :-1] if has_no_object else logits.sigmoid()
    queries = logits.shape[1]
    surest = scores.amax(-1).topk(min(max_regions, queries), dim=-1).indices  # [n, R]
    return states[:, -queries:].gather(1, surest[..., None].expand(-1, -1, states.shape[-1]))


def grid_regions(states: Tensor, image: Sequence[int], config: Any, grid: int) -> Tensor:
    """The means of an encoder's features over the cells of a grid, [n, grid * grid, d].

    Args:
        states: the features: a map [n, d, h, w], or the states of patches [n, prefix + h * w, d].
        image: height and width of the image in pixels.
        config: the encoder's configuration, whose `patch_size` gives the number of patches on each side; with
            `depths`, two by two of them are merged before every stage but the first.
        grid: number of cells on each side.
    """
    if states.ndim == 3:
        height, width = _patches(image, config)
        prefix = states.shape[1] - height * width
        if not height * width or prefix < 0 or (prefix and _stages(config) > 1):
            size = getattr(config, "patch_size", None)
            raise InputError(f"{states.shape[1]} states are no map of {tuple(image)} pixels in patches of {size}")
        states = states[:, prefix:].mT.unflatten(-1, (height, width))
    if states.ndim != 4:
        raise InputError(f"states of shape {tuple(states.shape)} are no map of features")
    return adaptive_avg_pool2d(states, grid).flatten(2).mT  # [n, d, grid, grid] -> [n, grid * grid, d]


def _patches(image: Sequence[int], config: Any) -> tuple[int, int]:
    """The number of patches from top to bottom and from left to right; 0 for a model without patches."""
    size = getattr(config, "patch_size", None)
    sizes = (size, size) if isinstance(size, int) else tuple(size or ())
    if not sizes:
        return 0, 0
    stages = _stages(config)
    if stages == 1:
        height, width = (pixels // patch for pixels, patch in zip(image, sizes, strict=False))
    else:  # Swin pads what is no multiple
        height, width = (-(-pixels // (patch << stages - 1)) for pixels, patch in zip(image, sizes, strict=False))
    return height, width


def _stages(config: Any) -> int:
    """The number of stages between which patches are merged; 1 for a model that does not."""
    return len(getattr(config, "depths", None) or [1])

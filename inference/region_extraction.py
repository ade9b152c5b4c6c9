"""Regions computed from images, where nobody published any: by an object detector, or by a small image encoder.

The paper's regions are a Faster R-CNN's, which is not among transformers' models. What DETR and its kin (Carion et al.
2020) know of a detected object is the decoder's state of the query that found it. An image encoder without a detector
gives a grid instead, each cell the mean of its last features there [choice, for images of single objects].

Computed once, they are kept by `trainers/frozen_features.py`, which takes what an extractor says of itself:

    frozen_features(lambda: extractor(images), weights=extractor.weights, settings=extractor.settings, items=...)
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d
from transformers import AutoImageProcessor, AutoModelForObjectDetection, BatchFeature, PreTrainedModel
from transformers.image_processing_utils import BaseImageProcessor

from ..configuration.errors import ModelKindError, RegionError
from ..configuration.pretrained import load_model, load_processor
from ..processing.image_augmentation import ImageAugmentation, TrainingTransform
from ..processing.image_inputs import as_images
from .backbones import load_backbone

# A model's inputs and outputs for n images -> the features of their regions [n, R, d].
Pooling = Callable[[BatchFeature, Any], Tensor]


class RegionExtractor:
    """Images -> region features, in batches, on the device of the model. Made by `from_detector` or `from_encoder`.

    Attributes:
        settings: how images become features, but for the weights: the model's configuration, its image processor,
            how its outputs are pooled.
        can_augment: whether images may be changed before; a detector's have no one size.
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
        parts = (model.config.to_dict(), image_processor.to_dict(), pooling_settings)
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
        """Regions are the states of the queries that are surest to have found an object, the surest first.

        Args:
            model: a `...ForObjectDetection` of DETR's kind: DETR, Conditional and Deformable DETR, RT-DETR, YOLOS.
            image_processor: the model's.
            max_regions: of an image; a model of fewer queries gives as many as it has.
            batch_size: images at a time.
        """

        def pool(inputs: BatchFeature, output: Any) -> Tensor:
            return query_regions(output, model.config.num_labels, max_regions)

        return cls(model, image_processor, pool, {"max_regions": max_regions}, batch_size)

    @classmethod
    def from_encoder(
        cls, model: PreTrainedModel, image_processor: BaseImageProcessor, *, grid: int = 6, batch_size: int = 16
    ) -> Self:
        """Regions are the cells of a `grid` x `grid` raster over the image, row by row from the top left.

        Args:
            model: whose `last_hidden_state` is a map [n, d, h, w] (ResNet, ConvNeXt, EfficientNet) or the states of
                square patches [n, prefix + h * w, d] (ViT, CLIP, SigLIP, DINOv2), the prefix being [CLS] and such.
            image_processor: the model's.
            grid: cells on each side.
            batch_size: images at a time.
        """

        def pool(inputs: BatchFeature, output: Any) -> Tensor:
            return grid_regions(output.last_hidden_state, inputs["pixel_values"].shape[-2:], model.config, grid)

        return cls(model, image_processor, pool, {"grid": grid}, batch_size, can_augment=True)

    @classmethod
    def from_pretrained(
        cls, folder_or_repo: str | Path, *, grid: int | None = None, max_regions: int = 36, **loading: Any
    ) -> Self:
        """That of a model in a folder or on the Hub: a detector's, or with a `grid` an image encoder's.

        Args:
            folder_or_repo, loading: what `from_pretrained` takes of the model and its image processor.
            grid: as in `from_encoder`, whose model may also be that of a dual encoder.
            max_regions: as in `from_detector`.

        Raises:
            OSError: when there is no such folder or repository.
            ModelKindError: when the image encoder sees no images.
            RegionError: without a `grid`, when the model is no detector.
        """
        images = load_processor(AutoImageProcessor, folder_or_repo, **loading)
        if grid is not None:
            return cls.from_encoder(load_backbone(folder_or_repo, **loading), images, grid=grid)
        try:
            detector = load_model(AutoModelForObjectDetection, folder_or_repo, **loading)
        except ModelKindError as error:
            raise RegionError(
                f"{folder_or_repo} is no object detector; a grid makes regions of what it sees"
            ) from error
        return cls.from_detector(detector, images, max_regions=max_regions)

    @property
    def weights(self) -> dict[str, Tensor]:
        """Of the model."""
        return self.model.state_dict()

    def __call__(
        self,
        images: Sequence[Any],
        seeds: Sequence[int] | None = None,
        augmentation: ImageAugmentation | None = None,
    ) -> np.ndarray:
        """
        Args:
            images: N images, as the image processor takes them; a slice is opened at a time.
            seeds: of the random changes that `augmentation` makes to each image [N].

        Returns:
            float32 [N, R, d].

        Raises:
            RegionError: for no images, or a model whose outputs are no regions.
            ValueError: for a detector's images with an `augmentation`.
        """
        if not len(images):
            raise RegionError("no images")
        transform = None
        if augmentation is not None and seeds is not None:
            if not self.can_augment:
                raise ValueError("the images of a detector, which have no one size, cannot be augmented")
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
        """The regions of each image as it is, and of so many versions of it that are `augmented`; always the same
        ones. float32 [N, 1 + augmented, R, d]."""
        count = len(images)
        changed = [
            self(images, range(version * count, (version + 1) * count), augmentation) for version in range(augmented)
        ]
        return np.stack([self(images), *changed], axis=1)


def query_regions(output: Any, num_labels: int, max_regions: int) -> Tensor:
    """The states of the queries that are surest to have found an object [n, R, d].

    Args:
        output: of a detector: `logits` [n, Q, labels] of its queries, `last_hidden_state` [n, ..., d] that ends in
            their states (before them, YOLOS has those of the patches).
        num_labels: of the detector. A further logit is that of no object, against which the others are weighed
            (DETR, YOLOS); without one, each class is scored for itself (the others).
        max_regions: R, where there are as many queries.

    Raises:
        RegionError: for outputs that are no detector's.
    """
    logits, states = getattr(output, "logits", None), getattr(output, "last_hidden_state", None)
    if logits is None or states is None or logits.ndim != 3 or states.ndim != 3:
        raise RegionError(f"a {type(output).__name__} has no logits and states of queries: no detector of DETR's kind")
    has_no_object = logits.shape[-1] == num_labels + 1
    scores = logits.softmax(-1)[..., :-1] if has_no_object else logits.sigmoid()
    queries = logits.shape[1]
    surest = scores.amax(-1).topk(min(max_regions, queries), dim=-1).indices  # [n, R]
    return states[:, -queries:].gather(1, surest[..., None].expand(-1, -1, states.shape[-1]))


def grid_regions(states: Tensor, image: Sequence[int], config: Any, grid: int) -> Tensor:
    """The means of an encoder's features over the cells of a raster [n, grid * grid, d].

    Args:
        states: [n, d, h, w], or [n, prefix + h * w, d] of patches.
        image: height and width in pixels.
        config: the encoder's, whose `patch_size` says how many patches there are on each side.
        grid: cells on each side.

    Raises:
        RegionError: for states that cannot be laid out as a map.
    """
    if states.ndim == 3:
        size = getattr(config, "patch_size", None)
        sizes = (size, size) if isinstance(size, int) else tuple(size or ())
        height, width = (pixels // patch for pixels, patch in zip(image, sizes, strict=False)) if sizes else (0, 0)
        prefix = states.shape[1] - height * width
        if not height * width or prefix < 0:
            raise RegionError(f"{states.shape[1]} states are no map of {tuple(image)} pixels in patches of {size}")
        states = states[:, prefix:].mT.unflatten(-1, (height, width))
    if states.ndim != 4:
        raise RegionError(f"states of shape {tuple(states.shape)} are no map of features")
    return adaptive_avg_pool2d(states, grid).flatten(2).mT  # [n, d, grid, grid] -> [n, grid * grid, d]

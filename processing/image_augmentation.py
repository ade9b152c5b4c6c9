"""Random image transforms for training, drawn from a seed for each example.

The paper's transforms are a random crop and a mirror image with probability 1/2 (ALIGN, section 5); the others are
off by default. The random choices for an image depend only on its seed, not on the worker, the process or the order
in which images are loaded. A resumed run, and a run with more workers, therefore use the same images.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers.image_processing_utils import BaseImageProcessor
from transformers.image_transforms import center_crop
from transformers.image_utils import ChannelDimension, PILImageResampling

from ..configuration.configuration_two_tower import check_probabilities
from ..utils.errors import InputError
from .images import check_size, to_rgb

# ---- The steps of an image processor ----
# Training changes images at random between the steps of a processor, so it cannot call the processor. The steps are
# read from the processor's attributes: the size, as the shorter side or as height and width; the crop, as `crop_size`
# or as ConvNeXt's `crop_pct`; and the factor, mean and standard deviation of the values.

# ConvNeXt's processors do not crop images of this size and above (`ConvNextImageProcessor.resize`).
_CROPPED_BELOW = 384
# Largest mean difference between the results of the steps and of the processor, as a share of the range of values.
# Pillow and torchvision differ by a tenth of it; a step that is missing here makes a difference of several percent.
_TOLERANCE = 0.01


class ImageSteps:
    """The steps of an image processor: resizing, cropping, scaling and normalizing.

    Attributes:
        crop_size: height and width of the crop of a resized image; `None` for the whole image.
    """

    def __init__(self, image_processor: BaseImageProcessor) -> None:
        self.processor = image_processor
        self.shorter: int | None = (image_processor.size or {}).get("shortest_edge")
        # The share of a resized image that ConvNeXt's processors keep.
        self.share = None if self.shorter is None else self._given("crop_pct", None)
        self.crop_size: tuple[int, int] | None = None
        if self.shorter is not None and self.share:
            self.crop_size = (self.shorter, self.shorter) if self.shorter < _CROPPED_BELOW else None
        elif self._given("do_center_crop", False) and (crop := image_processor.crop_size):
            self.crop_size = crop["height"], crop["width"]
        self._check()

    def resized(self, image: Image.Image) -> np.ndarray:
        """Resizes an image of any mode to uint8 [height, width, 3], on a black frame if the crop is larger."""
        check_size(*image.size)
        image = image if image.mode == "RGB" else to_rgb(image)
        width, height = self._resized_size(image)
        if image.size != (width, height):
            image = image.resize((width, height), self._given("resample", PILImageResampling.BILINEAR))
        pixels = np.asarray(image)
        crop = self.crop_size or (height, width)
        if crop[0] > height or crop[1] > width:
            pixels = _center(pixels, (max(height, crop[0]), max(width, crop[1])))
        return pixels

    def normalized(self, pixels: Tensor) -> Tensor:
        """Scales and normalizes pixels [N, 3, H, W] with values from 0 to 1 in place."""
        rescales, mean, std = self._given("do_rescale", True), self.processor.image_mean, self.processor.image_std
        factor = 255 * self.processor.rescale_factor if rescales else 255.0
        if factor != 1:
            pixels = pixels.mul_(factor)
        if rescales and self._given("rescale_offset", False):  # EfficientNet's
            pixels = pixels.sub_(1)
        if self._given("do_normalize", True):
            pixels = pixels.sub_(_per_channel(mean)).div_(_per_channel(std))
        if self._given("include_top", False):  # EfficientNet's classifiers divide a second time
            pixels = pixels.div_(_per_channel(std))
        return pixels

    def _given(self, name: str, default: Any) -> Any:
        """Returns an attribute of the processor, or the default if it is missing or `None`."""
        value = getattr(self.processor, name, None)
        return default if value is None else value

    def _resized_size(self, image: Image.Image) -> tuple[int, int]:
        """Returns the width and height to which an image is resized."""
        if not self._given("do_resize", True):
            return image.size
        if (shorter := self.shorter) is None:
            return self.processor.size["width"], self.processor.size["height"]
        if self.share:
            if shorter >= _CROPPED_BELOW:
                return shorter, shorter
            shorter = int(shorter / self.share)
        longer = int(shorter * max(image.size) / min(image.size))
        return (shorter, longer) if image.width <= image.height else (longer, shorter)

    def _check(self) -> None:
        """Compares the steps with the processor itself, on an image that reveals rotated, shifted or swapped parts."""
        name, size = type(self.processor).__name__, getattr(self.processor, "size", None)
        known = size is not None and "longest_edge" not in size and ("shortest_edge" in size or "height" in size)
        if not known and self._given("do_resize", True):
            raise InputError(
                f"training cannot reproduce how a {name} resizes images: its size {size} has neither a shortest_edge "
                "nor height and width"
            )
        y, x = np.mgrid[:40, :56]
        image = Image.fromarray(np.stack([4 * x, 6 * y, 240 - 2 * x - 2 * y], 2).astype(np.uint8))
        expected = torch.as_tensor(np.asarray(self.processor(image, return_tensors="pt")["pixel_values"]))
        pixels = self.resized(image)
        found = self.normalized(as_unit_pixels(np.stack([_center(pixels, self.crop_size or pixels.shape[:2])])))
        largest = _TOLERANCE * float(expected.max() - expected.min())
        if expected.shape != found.shape or (expected - found).abs().mean() > largest:
            raise InputError(
                f"training cannot reproduce the steps of a {name}: it does more than resize images, crop their "
                "center, scale and normalize them; compute their features once, without augmentation"
            )


def as_unit_pixels(images: np.ndarray) -> Tensor:
    """Converts 8-bit images to values from 0 to 1, [N, H, W, 3] -> [N, 3, H, W] in float32."""
    return torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(255)


def _center(pixels: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Crops the center of an image [H, W, 3] as processors do, with black where the size is larger."""
    last = ChannelDimension.LAST
    return center_crop(pixels, size, data_format=last, input_data_format=last)


def _per_channel(values: float | list[float]) -> Tensor:
    """Returns a value for each channel, or one for all, as [C, 1, 1]."""
    return torch.as_tensor(values, dtype=torch.float32).reshape(-1, 1, 1)


# ---- Random transforms ----


@dataclass(frozen=True)
class ImageAugmentation:
    """Settings of the random transforms that training applies to images in addition to resizing.

    Args:
        horizontal_flip: probability of a mirror image.
        scale: range of a random zoom, such as (0.8, 1.2). Edge pixels fill the border of an image that shrinks.
        rotation: largest rotation, in degrees.
        color_jitter: largest relative change of brightness, contrast and saturation.
        grayscale: probability that the image becomes gray.

    Examples:
        >>> augmentation = ImageAugmentation(scale=(0.8, 1.2), rotation=10, color_jitter=0.2)
    """

    horizontal_flip: float = 0.5
    scale: tuple[float, float] = (1.0, 1.0)
    rotation: float = 0.0
    color_jitter: float = 0.0
    grayscale: float = 0.0

    def __post_init__(self) -> None:
        check_probabilities(horizontal_flip=self.horizontal_flip, grayscale=self.grayscale)
        if not 0 < self.scale[0] <= self.scale[1]:
            raise ValueError(f"scale={self.scale} must be a range of positive numbers, smaller first")


class TrainingTransform:
    """Turns images and seeds into `pixel_values`, with the sizes and statistics of an image processor.

    Args:
        image_processor: any processor that only resizes, center-crops, scales and normalizes images, such as MURAL's
            or those of CLIP, SigLIP, ViT, DINOv2, ConvNeXt and EfficientNet. Training replaces the center crop with a
            random one.
        augmentation: the random transforms; `ImageAugmentation()` by default.
    """

    def __init__(self, image_processor: BaseImageProcessor, augmentation: ImageAugmentation | None = None) -> None:
        self.processor = image_processor
        self.augmentation = augmentation or ImageAugmentation()

    @cached_property
    def steps(self) -> ImageSteps:
        """The steps of the processor, read with the first image: a task without images can have any processor."""
        return ImageSteps(self.processor)

    def __call__(self, images: list[Image.Image], seeds: list[int]) -> Tensor:
        """Transforms N images of any size, each by its own seed.

        Returns:
            Pixels in float32, [N, 3, crop height, crop width], channels last in memory.
        """
        rngs = [np.random.Generator(np.random.PCG64(seed)) for seed in seeds]
        crops = [self._crop(image, rng) for image, rng in zip(images, rngs, strict=True)]  # each [H, W, 3] uint8
        sizes = sorted({crop.shape[:2] for crop in crops})
        if len(sizes) > 1:
            raise InputError(
                f"the {type(self.processor).__name__} makes images of different sizes, such as {sizes[0]} and "
                f"{sizes[1]}, which cannot form a batch: set its do_center_crop, or a size with height and width"
            )
        pixels = as_unit_pixels(np.stack(crops))
        pixels = self._warp(pixels, rngs)
        pixels = self._recolor(pixels, rngs)
        # Convolutions on CPUs and tensor cores are fastest with channels last in memory.
        return self.steps.normalized(pixels).contiguous(memory_format=torch.channels_last)

    def _crop(self, image: Image.Image, rng: np.random.Generator) -> np.ndarray:
        pixels = self.steps.resized(image)
        height, width = self.steps.crop_size or pixels.shape[:2]
        top = int(rng.integers(pixels.shape[0] - height + 1))
        left = int(rng.integers(pixels.shape[1] - width + 1))
        pixels = pixels[top : top + height, left : left + width]
        return pixels[:, ::-1] if rng.random() < self.augmentation.horizontal_flip else pixels

    def _warp(self, pixels: Tensor, rngs: list[np.random.Generator]) -> Tensor:
        """Zooms and rotates about the center, with bilinear interpolation."""
        if self.augmentation.scale == (1.0, 1.0) and not self.augmentation.rotation:
            return pixels
        zoom = np.array([rng.uniform(*self.augmentation.scale) for rng in rngs])
        angle = np.deg2rad([rng.uniform(-self.augmentation.rotation, self.augmentation.rotation) for rng in rngs])
        cos, sin, zero = np.cos(angle) / zoom, np.sin(angle) / zoom, np.zeros(len(rngs))
        aspect = pixels.shape[-1] / pixels.shape[-2]  # both axes run from -1 to 1
        matrices = np.stack([cos, -sin / aspect, zero, sin * aspect, cos, zero], 1)  # [N, 6]
        theta = torch.tensor(matrices, dtype=pixels.dtype).view(-1, 2, 3)
        grid = torch.nn.functional.affine_grid(theta, list(pixels.shape), align_corners=False)
        return torch.nn.functional.grid_sample(pixels, grid, padding_mode="border", align_corners=False)

    def _recolor(self, pixels: Tensor, rngs: list[np.random.Generator]) -> Tensor:
        jitter = self.augmentation.color_jitter
        if not jitter and not self.augmentation.grayscale:
            return pixels
        draws = np.array([[*rng.uniform(1 - jitter, 1 + jitter, 3), rng.random()] for rng in rngs], dtype=np.float32)
        brightness, contrast, saturation = torch.from_numpy(draws[:, :3].T).view(3, -1, 1, 1, 1)  # each [N, 1, 1, 1]
        grey = torch.from_numpy(draws[:, 3] < self.augmentation.grayscale).view(-1, 1, 1, 1)
        saturation = saturation.masked_fill(grey, 0.0)
        red, green, blue = pixels.split(1, dim=1)
        luma = (0.299 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)  # [N, 1, H, W], ITU-R BT.601
        mean = luma.mean((2, 3), keepdim=True)
        # Saturation scales colors about the luma, contrast about the mean, and brightness about 0. All three are
        # linear, so two passes over the images are enough.
        rest = luma * ((1 - saturation) * contrast) + mean * (1 - contrast)
        return pixels.mul_(saturation * contrast * brightness).add_(rest.mul_(brightness)).clamp_(0, 1)

"""Random image transforms for training, drawn from a seed for each example.

The paper's transforms are a random crop and a mirror image with probability 1/2 (ALIGN, section 5); the others are
off by default. The random choices for an image depend on its own seed alone, not on the worker, the process or the
order in which images are loaded. A resumed run, and a run with more workers, therefore use the same images.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers.image_processing_utils import BaseImageProcessor

from ..configuration.errors import TrainingSetupError
from .image_steps import ImageSteps, as_unit_pixels
from .probabilities import check_probabilities


@dataclass(frozen=True)
class ImageAugmentation:
    """Settings of the transforms that training applies to an image beside resizing it.

    Args:
        horizontal_flip: probability of a mirror image.
        scale: range of a random zoom, such as (0.8, 1.2). Where the zoomed image ends, its border is continued.
        rotation: largest rotation, in degrees.
        color_jitter: largest relative change of brightness, contrast and saturation.
        grayscale: probability that the image becomes gray.

    Raises:
        ValueError: if a probability is not between 0 and 1, or `scale` is not a range of positive numbers.

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
        image_processor: any image processor that resizes images, may crop their center, scales and normalizes them:
            MURAL's, or one of transformers, such as those of CLIP, SigLIP, ViT, DINOv2, ConvNeXt and EfficientNet.
            Where it crops the center, training crops at random.
        augmentation: the random transforms; by default those of `ImageAugmentation()`.
    """

    def __init__(self, image_processor: BaseImageProcessor, augmentation: ImageAugmentation | None = None) -> None:
        self.processor = image_processor
        self.augmentation = augmentation or ImageAugmentation()

    @cached_property
    def steps(self) -> ImageSteps:
        """The steps of the processor, read with the first image: a task without images may have any processor."""
        return ImageSteps(self.processor)

    def __call__(self, images: list[Image.Image], seeds: list[int]) -> Tensor:
        """Transforms images.

        Args:
            images: N images of any size.
            seeds: one seed for each image.

        Returns:
            Pixels in float32, [N, 3, crop height, crop width], with the channels of a pixel side by side in memory.

        Raises:
            ImageError: if the sides of an image differ too much for it to be resized.
            TrainingSetupError: if the processor has other steps, such as patches of varying number, or makes images
                of different sizes.
        """
        rngs = [np.random.Generator(np.random.PCG64(seed)) for seed in seeds]
        crops = [self._crop(image, rng) for image, rng in zip(images, rngs, strict=True)]  # each [H, W, 3] uint8
        self._check_sizes(crops)
        pixels = as_unit_pixels(np.stack(crops))
        pixels = self._warp(pixels, rngs)
        pixels = self._recolor(pixels, rngs)
        # Convolutions are fastest on a CPU, and with tensor cores, if the channels of a pixel are side by side.
        return self.steps.normalized(pixels).contiguous(memory_format=torch.channels_last)

    def _crop(self, image: Image.Image, rng: np.random.Generator) -> np.ndarray:
        pixels = self.steps.resized(image)
        height, width = self.steps.crop_size or pixels.shape[:2]
        top = int(rng.integers(pixels.shape[0] - height + 1))
        left = int(rng.integers(pixels.shape[1] - width + 1))
        pixels = pixels[top : top + height, left : left + width]
        return pixels[:, ::-1] if rng.random() < self.augmentation.horizontal_flip else pixels

    def _check_sizes(self, crops: list[np.ndarray]) -> None:
        """Refuses images of different sizes, as a processor makes them that keeps aspect ratios and crops nothing."""
        sizes = sorted({crop.shape[:2] for crop in crops})
        if len(sizes) > 1:
            raise TrainingSetupError(
                f"the {type(self.processor).__name__} makes images of different sizes, such as {sizes[0]} and "
                f"{sizes[1]}, which cannot be one batch: set its do_center_crop, or a size with height and width"
            )

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
        brightness, contrast, saturation = torch.from_numpy(draws[:, :3]).T[
            :, :, None, None, None
        ]  # each [N, 1, 1, 1]
        grey = torch.from_numpy(draws[:, 3] < self.augmentation.grayscale).view(-1, 1, 1, 1)
        saturation = saturation.masked_fill(grey, 0.0)
        red, green, blue = pixels.split(1, dim=1)
        luma = (0.299 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)  # [N, 1, H, W], ITU-R BT.601
        mean = luma.mean((2, 3), keepdim=True)
        # Saturation scales colors about the luma, contrast about the mean, and brightness about 0. All are linear, so
        # that the three together take two passes over the images.
        rest = luma * ((1 - saturation) * contrast) + mean * (1 - contrast)
        return pixels.mul_(saturation * contrast * brightness).add_(rest.mul_(brightness)).clamp_(0, 1)

"""Random image transforms for training, drawn from a seed for each example.

The paper's transforms are a random crop and a mirror image with probability 1/2 (ALIGN, section 5); the others are
off by default. The random choices for an image depend on its own seed alone, not on the worker, the process or the
order in which images are loaded. A resumed run, and a run with more workers, therefore use the same images.
"""

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers.image_processing_backends import PilBackend

from .images import check_size, to_rgb
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
        image_processor: states the sizes, the interpolation, the mean and the standard deviation.
        augmentation: the random transforms; by default those of `ImageAugmentation()`.
    """

    def __init__(self, image_processor: PilBackend, augmentation: ImageAugmentation | None = None) -> None:
        self.processor = image_processor
        self.augmentation = augmentation or ImageAugmentation()

    def __call__(self, images: list[Image.Image], seeds: list[int]) -> Tensor:
        """Transforms images.

        Args:
            images: N images of any size.
            seeds: one seed for each image.

        Returns:
            Pixels in float32, [N, 3, crop height, crop width], with the channels of a pixel side by side in memory.

        Raises:
            ImageError: if the sides of an image differ too much for it to be resized.
        """
        rngs = [np.random.Generator(np.random.PCG64(seed)) for seed in seeds]
        crops = np.stack(
            [self._crop(image, rng) for image, rng in zip(images, rngs, strict=True)]
        )  # [N, H, W, 3] uint8
        pixels = torch.from_numpy(crops).permute(0, 3, 1, 2).float().div_(255)
        pixels = self._warp(pixels, rngs)
        pixels = self._recolor(pixels, rngs)
        mean, std = (
            torch.tensor(values).view(3, 1, 1) for values in (self.processor.image_mean, self.processor.image_std)
        )
        # Convolutions are fastest on a CPU, and with tensor cores, if the channels of a pixel are side by side.
        return pixels.sub_(mean).div_(std).contiguous(memory_format=torch.channels_last)

    def _crop(self, image: Image.Image, rng: np.random.Generator) -> np.ndarray:
        check_size(*image.size)
        image = image if image.mode == "RGB" else to_rgb(image)
        width, height = self._resized(image)
        crop = self.processor.crop_size or {"height": height, "width": width}  # SigLIP's processors crop nothing
        if image.size != (width, height):
            image = image.resize((width, height), self.processor.resample)
        top = int(rng.integers(height - crop["height"] + 1))
        left = int(rng.integers(width - crop["width"] + 1))
        pixels = np.asarray(image)[top : top + crop["height"], left : left + crop["width"]]
        return pixels[:, ::-1] if rng.random() < self.augmentation.horizontal_flip else pixels

    def _resized(self, image: Image.Image) -> tuple[int, int]:
        """Returns width and height before the crop; CLIP's processors state the shorter side alone."""
        size = self.processor.size
        if "shortest_edge" not in size:
            return size["width"], size["height"]
        factor = size["shortest_edge"] / min(image.size)
        return round(image.width * factor), round(image.height * factor)

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

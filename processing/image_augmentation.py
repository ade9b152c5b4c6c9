"""Training-time image transforms, drawn from a seed for each example.

The paper's transforms are a random crop and a mirror image with probability 1/2 (ALIGN, section 5); the others are off
unless asked for. An image's random choices depend on its own seed alone, not on the worker, the process or the order
in which it is loaded, so that a resumed run and a run on more workers see the same images.
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
    """What training does to an image beyond resizing it.

    Args:
        horizontal_flip: probability of the mirror image.
        scale: range of a random zoom, such as (0.8, 1.2); what is uncovered takes the corner's colour.
        rotation: largest rotation in degrees.
        color_jitter: largest relative change of brightness, contrast and saturation.
        grayscale: probability of losing the colour.
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
    """Images and seeds -> `pixel_values`, with the sizes and statistics of an image processor."""

    def __init__(self, image_processor: PilBackend, augmentation: ImageAugmentation | None = None) -> None:
        self.processor = image_processor
        self.augmentation = augmentation or ImageAugmentation()

    def __call__(self, images: list[Image.Image], seeds: list[int]) -> Tensor:
        """[N] images of any size and N seeds -> float32 [N, 3, crop height, crop width].

        Raises:
            ImageError: for an image that is too long and thin to be resized.
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
        # Convolutions run fastest on the CPU, and with tensor cores, when the channels of a pixel lie side by side.
        return pixels.sub_(mean).div_(std).contiguous(memory_format=torch.channels_last)

    def _crop(self, image: Image.Image, rng: np.random.Generator) -> np.ndarray:
        check_size(*image.size)
        image = image if image.mode == "RGB" else to_rgb(image)
        width, height = self._resized(image)
        crop = self.processor.crop_size or {"height": height, "width": width}  # SigLIP's processors do not crop
        if image.size != (width, height):
            image = image.resize((width, height), self.processor.resample)
        top = int(rng.integers(height - crop["height"] + 1))
        left = int(rng.integers(width - crop["width"] + 1))
        pixels = np.asarray(image)[top : top + crop["height"], left : left + crop["width"]]
        return pixels[:, ::-1] if rng.random() < self.augmentation.horizontal_flip else pixels

    def _resized(self, image: Image.Image) -> tuple[int, int]:
        """Width and height before the crop; CLIP's processors state the shorter side alone."""
        size = self.processor.size
        if "shortest_edge" not in size:
            return size["width"], size["height"]
        factor = size["shortest_edge"] / min(image.size)
        return round(image.width * factor), round(image.height * factor)

    def _warp(self, pixels: Tensor, rngs: list[np.random.Generator]) -> Tensor:
        """Zoom and rotation about the centre, bilinear."""
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
        # Saturation spreads colours about luma, contrast about the mean, brightness scales: each is linear, so that
        # all three take two passes over the images.
        rest = luma * ((1 - saturation) * contrast) + mean * (1 - contrast)
        return pixels.mul_(saturation * contrast * brightness).add_(rest.mul_(brightness)).clamp_(0, 1)

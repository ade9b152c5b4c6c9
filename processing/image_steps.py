"""The steps by which an image processor of transformers turns an image into pixel values, one by one.

Training changes images at random between these steps, so that it cannot call the processor. The steps are read from
the processor's attributes: the size, given as the shorter side or as height and width; the part that is cropped, given
as `crop_size` or as ConvNeXt's `crop_pct`; the factor, mean and standard deviation of the values.
"""

from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers.image_processing_utils import BaseImageProcessor
from transformers.image_transforms import center_crop
from transformers.image_utils import ChannelDimension, PILImageResampling

from ..configuration.errors import TrainingSetupError
from .images import check_size, to_rgb

# ConvNeXt's processors crop nothing from images of this size and above (`ConvNextImageProcessor.resize`).
_CROPPED_BELOW = 384
# Largest mean difference of the steps' result from the processor's, as a share of the range of its values. Pillow and
# torchvision differ by a tenth of it; a step that is missing here makes a difference of several percent.
_TOLERANCE = 0.01


class ImageSteps:
    """The steps of an image processor: resizing, cropping, scaling and normalizing.

    Args:
        image_processor: an image processor of transformers, or one like it.

    Attributes:
        crop_size: height and width of the part of a resized image that is kept; `None` for all of it.

    Raises:
        TrainingSetupError: if its results are not those of the processor, because the processor has other steps.
    """

    def __init__(self, image_processor: BaseImageProcessor) -> None:
        self.processor = image_processor
        self.crop_size = self._crop_size()
        self._check()

    def resized(self, image: Image.Image) -> np.ndarray:
        """Resizes an image of any mode, and lays a black frame around it where the crop is larger.

        Returns:
            uint8 [height, width, 3].

        Raises:
            ImageError: if the sides of the image differ too much for it to be resized.
        """
        check_size(*image.size)
        image = image if image.mode == "RGB" else to_rgb(image)
        width, height = self._resized_size(image)
        if image.size != (width, height):
            image = image.resize((width, height), _given(self.processor, "resample", PILImageResampling.BILINEAR))
        pixels = np.asarray(image)
        crop = self.crop_size or (height, width)
        if crop[0] > height or crop[1] > width:
            pixels = _center(pixels, (max(height, crop[0]), max(width, crop[1])))
        return pixels

    def normalized(self, pixels: Tensor) -> Tensor:
        """Scales and normalizes pixels.

        Args:
            pixels ([N, 3, H, W]): values from 0 to 1, which are overwritten.
        """
        processor = self.processor
        factor = 255 * processor.rescale_factor if _given(processor, "do_rescale", True) else 255.0
        if factor != 1:
            pixels = pixels.mul_(factor)
        if _given(processor, "do_rescale", True) and _given(processor, "rescale_offset", False):  # EfficientNet's
            pixels = pixels.sub_(1)
        if _given(processor, "do_normalize", True):
            pixels = pixels.sub_(_per_channel(processor.image_mean)).div_(_per_channel(processor.image_std))
        if _given(processor, "include_top", False):  # EfficientNet's classifiers divide a second time
            pixels = pixels.div_(_per_channel(processor.image_std))
        return pixels

    @property
    def _shortest_edge(self) -> int | None:
        size = self.processor.size
        return None if size is None or "shortest_edge" not in size else size["shortest_edge"]

    def _cropped_share(self) -> float | None:
        """The share of a resized image that the processor keeps, as ConvNeXt's does."""
        return None if self._shortest_edge is None else _given(self.processor, "crop_pct", None)

    def _crop_size(self) -> tuple[int, int] | None:
        shorter = self._shortest_edge
        if shorter is not None and self._cropped_share():
            return (shorter, shorter) if shorter < _CROPPED_BELOW else None
        crop = self.processor.crop_size
        if not _given(self.processor, "do_center_crop", False) or not crop:
            return None
        return crop["height"], crop["width"]

    def _resized_size(self, image: Image.Image) -> tuple[int, int]:
        """The width and height to which an image is resized."""
        if not _given(self.processor, "do_resize", True):
            return image.size
        size, shorter, share = self.processor.size, self._shortest_edge, self._cropped_share()
        if shorter is None:
            return size["width"], size["height"]
        if share:
            if shorter >= _CROPPED_BELOW:
                return shorter, shorter
            shorter = int(shorter / share)
        longer = int(shorter * max(image.size) / min(image.size))
        return (shorter, longer) if image.width <= image.height else (longer, shorter)

    def _check(self) -> None:
        """Compares the steps with the processor itself, on an image that shows turned, moved or exchanged parts."""
        name, size = type(self.processor).__name__, getattr(self.processor, "size", None)
        known = size is not None and "longest_edge" not in size and ("shortest_edge" in size or "height" in size)
        if not known and _given(self.processor, "do_resize", True):
            raise TrainingSetupError(
                f"training cannot repeat how a {name} resizes images: its size is {size}, and neither a shortest_edge "
                "nor height and width"
            )
        y, x = np.mgrid[:40, :56]
        image = Image.fromarray(np.stack([4 * x, 6 * y, 240 - 2 * x - 2 * y], 2).astype(np.uint8))
        expected = torch.as_tensor(np.asarray(self.processor(image, return_tensors="pt")["pixel_values"]))
        pixels = self.resized(image)
        center = _center(pixels, self.crop_size or pixels.shape[:2])
        found = self.normalized(as_unit_pixels(np.stack([center])))
        largest = _TOLERANCE * float(expected.max() - expected.min())
        if expected.shape != found.shape or (expected - found).abs().mean() > largest:
            raise TrainingSetupError(
                f"training cannot repeat what a {name} does to images: it does more than to resize them, to crop "
                "their center, to scale and to normalize them; compute their features once, without changes"
            )


def as_unit_pixels(images: np.ndarray) -> Tensor:
    """8-bit images as values from 0 to 1, [N, H, W, 3] -> [N, 3, H, W] in float32."""
    return torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(255)


def _center(pixels: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """The center of an image [H, W, 3], with black where the size is larger, as processors crop it."""
    last = ChannelDimension.LAST
    return center_crop(pixels, size, data_format=last, input_data_format=last)


def _given(processor: BaseImageProcessor, name: str, default: Any) -> Any:
    """An attribute of a processor, or the default if it has none or is `None`."""
    value = getattr(processor, name, None)
    return default if value is None else value


def _per_channel(values: float | list[float]) -> Tensor:
    """A value for each channel, or one for all, as [C, 1, 1]."""
    return torch.as_tensor(values, dtype=torch.float32).reshape(-1, 1, 1)

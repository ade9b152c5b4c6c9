"""MURAL's and ALIGN's image transforms: resize to 346 x 346 without keeping the aspect, crop 289 x 289, scale to
[-1, 1].

Evaluation crops the centre; training crops at random and mirrors half of the images (`image_augmentation.py`). The
backend is Pillow's on every machine: transformers would take torchvision's where it is installed, and pixels would
differ between machines.
"""

from pathlib import Path
from typing import Any

import numpy as np
from transformers.image_processing_backends import PilBackend
from transformers.image_utils import PILImageResampling

from ..configuration.hub_code import HubCodeMixin
from .images import open_image, to_rgb


class MuralImageProcessor(HubCodeMixin, PilBackend):
    """Takes images of any mode: transparency lies on white, EXIF orientation is applied."""

    auto_classes = ("AutoImageProcessor",)
    do_convert_rgb = True
    do_resize = True
    size = {"height": 346, "width": 346}
    resample = PILImageResampling.BILINEAR
    do_center_crop = True
    crop_size = {"height": 289, "width": 289}
    do_rescale = True
    do_normalize = True
    image_mean = [0.5, 0.5, 0.5]
    image_std = [0.5, 0.5, 0.5]

    def fetch_images(self, images: object) -> object:
        # transformers would open a file without its transparency, and fetch what looks like an address.
        if isinstance(images, str | Path):
            return open_image(images)
        return super().fetch_images(images)

    def convert_to_rgb(self, image: Any, input_data_format: Any = None) -> np.ndarray:
        if hasattr(image, "mode"):  # a Pillow image
            return np.asarray(to_rgb(image))
        return super().convert_to_rgb(image, input_data_format=input_data_format)


__all__ = ["MuralImageProcessor"]

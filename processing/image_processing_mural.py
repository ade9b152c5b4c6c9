"""Image transforms of MURAL and ALIGN. The backend is always Pillow: torchvision computes different pixels."""

from pathlib import Path
from typing import Any

import numpy as np
from transformers.image_processing_backends import PilBackend
from transformers.image_utils import PILImageResampling

from ..utils.hub_mixin import HubCodeMixin
from .images import open_image, to_rgb


class MuralImageProcessor(HubCodeMixin, PilBackend):
    """Resizes images of any mode to 346 x 346 without keeping the aspect ratio, crops to 289 x 289, scales to [-1, 1].

    Examples:
        >>> image_processor = MuralImageProcessor(size={"height": 224, "width": 224}, do_center_crop=False)
        >>> image_processor(Image.open("car.jpg"), return_tensors="pt")["pixel_values"]  # [1, 3, 224, 224]
    """

    auto_classes = ("AutoImageProcessor",)
    do_convert_rgb = do_resize = do_center_crop = do_rescale = do_normalize = True
    size = {"height": 346, "width": 346}
    crop_size = {"height": 289, "width": 289}
    resample = PILImageResampling.BILINEAR
    image_mean = [0.5, 0.5, 0.5]
    image_std = [0.5, 0.5, 0.5]

    def fetch_images(self, images: object) -> object:
        # transformers would drop the transparency of a file, and would download strings that look like web addresses.
        return open_image(images) if isinstance(images, str | Path) else super().fetch_images(images)

    def convert_to_rgb(self, image: Any, **kwargs: Any) -> np.ndarray:
        is_pillow = hasattr(image, "mode")
        return np.asarray(to_rgb(image)) if is_pillow else super().convert_to_rgb(image, **kwargs)

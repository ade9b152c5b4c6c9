"""The visual inputs of RC3's models, which travel from a forward to the encoder as one dictionary."""

from collections.abc import Mapping
from typing import Any, TypedDict

from torch import Tensor


class VisualInputs(TypedDict, total=False):
    """What a model is given of images, named like the keyword arguments of its forward.

    A model that reads two images with each text takes [N, 2, …] for [N, …].

    Attributes:
        region_features ([N, R, F]): features of regions, from an object detector.
        region_mask ([N, R]): which regions exist; a row without an image has none. Default: all.
        pixel_values ([N, 3, H, W]): images.
        pixel_mask ([N]): which rows have an image. Default: all.
    """

    region_features: Tensor | None
    region_mask: Tensor | None
    pixel_values: Tensor | None
    pixel_mask: Tensor | None


def visual_inputs(
    region_features: Tensor | None = None,
    region_mask: Tensor | None = None,
    pixel_values: Tensor | None = None,
    pixel_mask: Tensor | None = None,
) -> VisualInputs:
    """The visual arguments of a forward as one dictionary."""
    return {
        "region_features": region_features,
        "region_mask": region_mask,
        "pixel_values": pixel_values,
        "pixel_mask": pixel_mask,
    }


def visual_inputs_in(batch: Mapping[str, Any]) -> VisualInputs:
    """The visual inputs among the entries of a batch."""
    return visual_inputs(**{name: batch[name] for name in VisualInputs.__annotations__ if name in batch})

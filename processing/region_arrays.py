"""Regions of images as arrays: checks of one image, and batches of images with different numbers of regions.

The features of an image are [R, d], one row for each region from a detector (Zhou et al. 2023, section 3.2: 36 regions
of width 2048). `regions` reads them from files.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..utils.errors import InputError


def check_regions(features: Any, region_size: int, max_regions: int, called: str) -> np.ndarray:
    """Returns the features of one image, an array or a tensor, as float32 [R, region_size], with R from 1 to
    `max_regions`. Errors refer to the image as `called`."""
    if hasattr(features, "numpy"):  # a tensor, on any device, with or without a gradient
        features = features.detach().float().cpu().numpy()
    try:
        array = np.asarray(features, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"{called}: the features are not numbers ({error})") from error
    if array.ndim != 2 or array.shape[1] != region_size or not 1 <= len(array) <= max_regions:
        raise InputError(
            f"{called}: features of the shape {list(array.shape)}; the model reads 1 to {max_regions} regions of "
            f"width {region_size}, and None for an image without regions"
        )
    if not np.isfinite(array).all():
        raise InputError(f"{called}: the features are not finite")
    return array


def pad_regions(images: Sequence[np.ndarray | None], region_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Pads the regions of images, each features or None, to the largest number of regions.

    Returns:
        Features float32 [N, R, region_size], zero at padding, and a mask of the existing regions, bool [N, R].
    """
    longest = max(0 if regions is None else len(regions) for regions in images)
    features = np.zeros((len(images), longest, region_size), np.float32)
    mask = np.zeros((len(images), longest), bool)
    for row, regions in enumerate(images):
        if regions is not None:
            features[row, : len(regions)], mask[row, : len(regions)] = regions, True
    return features, mask

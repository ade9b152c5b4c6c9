"""Regions of images as arrays: checks of one image, and batches of images with different numbers of regions.

The features of an image are [R, d], one row for each region from a detector (Zhou et al. 2023, section 3.2: 36 regions
of width 2048). `regions` reads them from files.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..utils.errors import InputError


def check_regions(features: Any, region_size: int, max_regions: int, called: str) -> np.ndarray:
    """Returns the features of one image as float32 [R, region_size], with R from 1 to `max_regions`.

    Args:
        features: an array or a tensor.
        region_size, max_regions: as in `Rc3Config`.
        called: the name of the image in errors.
    """
    if hasattr(features, "numpy"):  # a tensor, on any device, with or without a gradient
        features = features.detach().float().cpu().numpy()
    try:
        array = np.asarray(features, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"{called}: the features are not numbers ({error})") from error
    if array.ndim != 2:
        raise InputError(f"{called}: features must have the shape [regions, {region_size}], not {array.shape}")
    if not len(array):
        raise InputError(f"{called}: no regions; give None for an image without any")
    if array.shape[1] != region_size:
        raise InputError(f"{called}: regions have the width {array.shape[1]}; the model reads {region_size}")
    if len(array) > max_regions:
        raise InputError(f"{called}: {len(array)} regions; the model reads at most {max_regions}")
    if not np.isfinite(array).all():
        raise InputError(f"{called}: the features are not finite")
    return array


def pad_regions(images: Sequence[np.ndarray | None], region_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Pads the regions of images to the largest number of regions.

    Args:
        images: features of each image, or None.
        region_size: width of the features.

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

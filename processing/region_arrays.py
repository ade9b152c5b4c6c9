"""Regions of images as arrays: what they must be like, and batches of images with several regions, few or none.

An image has [R, d] features, a row for each region that a detector found (Zhou et al. 2023, section 3.2: 36 of 2048
numbers). Where they come from is left to `regions.py` and `region_extraction.py`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..configuration.errors import RegionError


def check_regions(features: Any, region_size: int, max_regions: int, called: str) -> np.ndarray:
    """The features of one image as float32 [R, region_size], R from 1 to `max_regions`.

    Args:
        features: an array or a tensor.
        called: how errors name the image.

    Raises:
        RegionError: for other shapes.
        RegionError: for what is no number.
    """
    if hasattr(features, "numpy"):  # a tensor, on whatever device, with or without a gradient
        features = features.detach().float().cpu().numpy()
    try:
        array = np.asarray(features, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise RegionError(f"{called}: features that are no numbers ({error})") from error
    if array.ndim != 2:
        raise RegionError(f"{called}: features must be of shape [regions, {region_size}], not {array.shape}")
    if not len(array):
        raise RegionError(f"{called}: no regions; give None for an image without any")
    if array.shape[1] != region_size:
        raise RegionError(f"{called}: a region is {array.shape[1]} numbers, where the model reads {region_size}")
    if len(array) > max_regions:
        raise RegionError(f"{called}: {len(array)} regions, where the model has room for {max_regions}")
    if not np.isfinite(array).all():
        raise RegionError(f"{called}: features that are not finite")
    return array


def pad_regions(images: Sequence[np.ndarray | None], region_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Features float32 [N, R, region_size], zero where there are none, and where there are some: bool [N, R].

    R is that of the image with most regions.
    """
    longest = max(0 if regions is None else len(regions) for regions in images)
    features = np.zeros((len(images), longest, region_size), np.float32)
    mask = np.zeros((len(images), longest), bool)
    for row, regions in enumerate(images):
        if regions is not None:
            features[row, : len(regions)], mask[row, : len(regions)] = regions, True
    return features, mask

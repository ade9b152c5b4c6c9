"""Turns the images that processors and the embedder are given, in any form, into one list of Pillow images."""

from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from transformers.image_utils import ChannelDimension, infer_channel_dimension_format

from ..configuration.errors import ImageError, InputError
from .images import check_size, decoded, open_image, to_rgb
from .text_inputs import shown_briefly

_CHANNELS = (1, 3, 4)  # gray, RGB, RGB with transparency


def as_images(images: Any, *, layout: Any = None, scaled: bool = False) -> list[Any]:
    """Returns one image or several as a list; lists of lists and arrays of several images are flattened.

    Args:
        images: Pillow images, arrays or tensors, paths, or the bytes of image files. A string is a path and never a
            web address: nothing is downloaded.
        layout, scaled: as in `as_image`.

    Raises:
        InputError: for an empty list.
        ImageError: if an item is not an image, or cannot be read; the message names it.
    """
    flat = [item for entry in _entries(images) for item in _entries(entry)]
    if not flat:
        raise InputError("images is an empty list")
    return [as_image(image, f"images[{index}]", layout=layout, scaled=scaled) for index, image in enumerate(flat)]


def as_image(image: Any, called: str, *, layout: Any = None, scaled: bool = False, draft: int | None = None) -> Any:
    """Returns an image as a decoded Pillow image; with `scaled`, an array of floats is returned unchanged.

    Args:
        image: as in `as_images`. Arrays and tensors are [height, width], [height, width, channels] or [channels,
            height, width], gray, RGB or RGB with transparency: integers from 0 to 255, booleans, or 16-bit gray
            values.
        called: how errors name an image that has no file name.
        layout: position of the channels in arrays, `"channels_first"` or `"channels_last"`; inferred by default.
        scaled: accept floats too, as RGB, scaled as the model needs them.
        draft: as in `open_image`, of files.

    Raises:
        ImageError: if it is not an image, or cannot be read.
    """
    if isinstance(image, str | Path | bytes):
        return open_image(image, draft=draft)
    if isinstance(image, PIL.Image.Image):
        return decoded(image, called)
    if hasattr(image, "numpy") and hasattr(image, "detach"):  # a tensor, on any device
        image = image.detach().cpu()
        image = (image.float() if image.is_floating_point() else image).numpy()
    if not isinstance(image, np.ndarray):
        raise ImageError(
            f"{called} is {shown_briefly(image)}, not an image: give a Pillow image, a path, or an array of uint8"
        )
    return _of_array(image, called, layout, scaled)


def as_rgb_image(image: Any, called: str, *, draft: int | None = None) -> PIL.Image.Image:
    """One image in any form as an upright RGB image in 8 bits; arguments and errors are those of `as_image`."""
    if isinstance(image, PIL.Image.Image):
        return open_image(image, called=called)
    return as_image(image, called, draft=draft)


def _entries(given: Any) -> list[Any]:
    """Returns the items of a list, a tuple or an array of several images, and anything else as a list of one."""
    if isinstance(given, list | tuple):
        return list(given)
    return list(given) if hasattr(given, "shape") and getattr(given, "ndim", 0) == 4 else [given]


def _of_array(array: np.ndarray, called: str, layout: Any, scaled: bool) -> Any:
    if array.dtype.kind not in "uifb":
        raise ImageError(f"{called} is an array of {array.dtype}, which cannot be pixels: give uint8, 0 to 255")
    if array.ndim not in (2, 3):
        raise ImageError(f"{called} has the shape {array.shape}: an image is [height, width, 3] or [3, height, width]")
    try:
        pixels = _channels_last(array, layout)
        check_size(pixels.shape[1], pixels.shape[0])
    except ImageError as error:
        raise ImageError(f"{called}: {error}") from None
    except ValueError as error:
        raise ImageError(f"{called} has the shape {array.shape}, in which no side has 1, 3 or 4 channels") from error
    if array.dtype.kind == "f":
        return _floats(array, pixels, called, scaled)
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    if pixels.ndim == 3 or not (pixels.dtype.kind == "b" or pixels.dtype.newbyteorder("=") == np.uint16):
        if pixels.dtype.kind == "b" or pixels.min() < 0 or pixels.max() > 255:
            raise ImageError(f"{called} has {array.dtype} values from {array.min()} to {array.max()}, not 0 to 255")
        pixels = pixels.astype(np.uint8)
    return to_rgb(PIL.Image.fromarray(np.ascontiguousarray(pixels)))


def _channels_last(array: np.ndarray, layout: Any) -> np.ndarray:
    """Returns [height, width] unchanged, and other arrays as [height, width, channels]."""
    if array.ndim == 2:
        return array
    found = ChannelDimension(layout) if layout is not None else infer_channel_dimension_format(array, _CHANNELS)
    pixels = np.moveaxis(array, 0, -1) if found is ChannelDimension.FIRST else array
    if pixels.shape[-1] not in _CHANNELS:
        raise ValueError(f"{pixels.shape[-1]} channels")
    return pixels


def _floats(array: np.ndarray, pixels: np.ndarray, called: str, scaled: bool) -> np.ndarray:
    if not scaled:
        raise ImageError(
            f"{called} is an array of {array.dtype}, whose range may be 0 to 1 or 0 to 255: give "
            "uint8, 0 to 255, or to a processor floats from 0 to 1 with do_rescale=False"
        )
    if pixels.ndim != 3 or pixels.shape[-1] != 3:
        raise ImageError(f"{called} has floats of the shape {array.shape}; floats are accepted for RGB only")
    if not np.isfinite(array).all():
        raise ImageError(f"{called} has values that are not finite")
    return array

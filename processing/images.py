"""Opens images of any form as upright 8-bit RGB, or raises an error that names the reason."""

import stat
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from PIL.ImageOps import exif_transpose
from transformers.image_utils import ChannelDimension, infer_channel_dimension_format

from ..utils.errors import ImageError, InputError

# Common formats of photographs and drawings. Pillow opens many more, some of them (EPS) by running other programs.
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "AVIF", "BMP", "TIFF", "PPM", "JPEG2000")
HEIC_ADVICE = "HEIC needs `pip install pillow-heif`"
# Pixels of the largest image that is decoded: 201 MB of RGB. Pillow's limit against decompression bombs is a third
# higher. Both can be changed.
MAX_PIXELS = 1 << 26
# Largest ratio of the sides. CLIP's processor would turn 1 x 10,000 pixels into 224 x 2,240,000.
MAX_ASPECT = 100
SHOWN = 60  # number of characters of a text or value in a message


def open_image(source: Any, *, called: str = "image", draft: int | None = None) -> PIL.Image.Image:
    """Opens an image in any form that `as_images` accepts (`called` so in errors) as upright RGB; reads only the first
    frame of an animation. With `draft`, a JPEG file is decoded faster, at 1/2, 1/4 or 1/8 of its size, while both
    sides keep at least this many pixels."""
    name = str(source) if isinstance(source, str | Path) else getattr(source, "filename", "") or called
    name = f"image of {len(source)} bytes" if isinstance(source, bytes) else name
    try:
        if isinstance(source, str | Path | bytes):
            file = BytesIO(source) if isinstance(source, bytes) else regular_file(source)
            with PIL.Image.open(file, formats=readable_formats()) as image:
                return to_rgb(_decode(image, draft))
        return to_rgb(_decode(source)) if isinstance(source, PIL.Image.Image) else _of_array(source)
    except FileNotFoundError as error:
        address = "; a string is a path, and URLs are not downloaded" if "://" in name else ""
        raise ImageError(f"{name}: no such file{address}") from error
    except PIL.UnidentifiedImageError as error:
        advice = "" if "HEIF" in readable_formats() else f"; {HEIC_ADVICE}"
        listed = ", ".join(readable_formats())
        raise ImageError(f"{name}: not an image in one of the formats {listed}{advice}") from error
    except Exception as error:  # Pillow raises a dozen types for broken files, EXIF blocks and palettes
        raise ImageError(f"{name}: {error}") from (error.__cause__ if isinstance(error, ImageError) else error)


@cache
def readable_formats() -> tuple[str, ...]:
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return FORMATS
    register_heif_opener()
    return (*FORMATS, "HEIF")


def check_size(width: int, height: int) -> None:
    """Checks that an image has pixels, and that no side is more than `MAX_ASPECT` times as long as the other."""
    shorter, longer = sorted((width, height))
    if not shorter:
        raise ImageError(f"an image of {width} x {height} pixels is empty")
    if longer > MAX_ASPECT * shorter:
        raise ImageError(f"a side is more than {MAX_ASPECT} times as long as the other: {width} x {height} pixels")


def to_rgb(image: PIL.Image.Image) -> PIL.Image.Image:
    """Applies EXIF orientation, puts transparency on white, and scales gray values of more than 8 bits by their
    range."""
    if image.getexif().get(PIL.Image.ExifTags.Base.Orientation, 1) != 1:
        image = exif_transpose(image)
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        image = _gray(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = PIL.Image.alpha_composite(PIL.Image.new("RGBA", image.size, "white"), image)
    return image.copy() if image.mode == "RGB" else image.convert("RGB")


def _gray(image: PIL.Image.Image) -> PIL.Image.Image:
    """Scales gray values to 8 bits; Pillow would clip them at 255. Files do not state the range of their values (a
    camera's 12 bits are stored in 16), so the smallest usual range with the brightest value is used."""
    values = np.asarray(image.convert("I") if image.mode.startswith("I;16") else image, dtype=np.float64)
    darkest, brightest = values.min(), values.max()
    if not (darkest >= 0 and brightest <= 65535):  # nor NaN
        raise ImageError(f"its gray values range from {darkest:g} to {brightest:g}: scale them to 0 to 255")
    if image.mode == "F" and brightest <= 1:
        values = values * 255 + 0.5
    elif brightest > 255:
        values = values / (16 if brightest <= 4095 else 257)
    return PIL.Image.fromarray(values.astype(np.uint8))


def regular_file(path: str | Path) -> Path:
    """Returns `path` if it is a file: opening a pipe would wait for someone to write to it."""
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise ImageError("not a file")
    return Path(path)


def _decode(image: PIL.Image.Image, draft: int | None = None) -> PIL.Image.Image:
    limit = min(MAX_PIXELS, PIL.Image.MAX_IMAGE_PIXELS or MAX_PIXELS)
    if image.width * image.height > limit:
        raise ImageError(f"{image.width} x {image.height} pixels are more than the {limit} allowed")
    check_size(image.width, image.height)
    if draft is not None:
        image.draft(None, (draft, draft))  # reads the whole JPEG stream, but computes some of its rows and columns
    image.load()
    return image


def as_images(images: Any) -> list[PIL.Image.Image]:
    """Returns one image or several as a flat list of upright RGB images: of Pillow images, paths, the bytes of files,
    or arrays and tensors [height, width], [height, width, channels] or [channels, height, width] with integers from 0
    to 255, booleans, or 16-bit gray values. A string is a path: nothing is downloaded."""

    def entries(given: Any) -> list[Any]:
        several = isinstance(given, list | tuple) or (hasattr(given, "shape") and getattr(given, "ndim", 0) == 4)
        return list(given) if several else [given]

    flat = [item for entry in entries(images) for item in entries(entry)]
    if not flat:
        raise InputError("images is an empty list")
    return [open_image(image, called=f"images[{index}]") for index, image in enumerate(flat)]


def _of_array(array: Any) -> PIL.Image.Image:
    if hasattr(array, "detach"):  # a tensor, on any device
        array = array.detach().cpu().numpy()
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "uib" or array.ndim not in (2, 3):
        shown = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else truncated_repr(array)
        raise ImageError(f"{shown} is not an image: give a Pillow image, a path, or an array of uint8 from 0 to 255")
    if array.ndim == 3:
        if infer_channel_dimension_format(array, (1, 3, 4)) is ChannelDimension.FIRST:
            array = np.moveaxis(array, 0, -1)
        array = array[..., 0] if array.shape[-1] == 1 else array
    check_size(array.shape[1], array.shape[0])
    if array.dtype.kind == "b":
        array = array * np.uint8(255)
    if array.ndim == 3 or array.dtype.newbyteorder("=") != np.uint16:  # which `to_rgb` scales
        if array.min() < 0 or array.max() > 255:
            raise ImageError(f"{array.dtype} values from {array.min()} to {array.max()}, not 0 to 255")
        array = array.astype(np.uint8)
    return to_rgb(PIL.Image.fromarray(np.ascontiguousarray(array)))


def truncated_repr(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}… ({type(value).__name__})"

"""Opens images: from a file, bytes or a Pillow image of any mode to upright 8-bit RGB, or an error that names the
reason.

It needs Pillow alone, and uses pillow-heif where it is there: published model folders carry this module, so that
images are read there as in training.
"""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageMath
from PIL.ImageOps import exif_transpose
from transformers.image_utils import ChannelDimension, infer_channel_dimension_format

from ..utils.errors import ImageError, InputError
from .text_inputs import shown_briefly

# Common formats of photographs and drawings. Pillow opens many more, some of them (EPS) with other programs.
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "AVIF", "BMP", "TIFF", "PPM", "JPEG2000")
HEIC_ADVICE = "HEIC needs `pip install pillow-heif`"

# Pixels of the largest image that is decoded, 201 MB of RGB. Pillow's own limit against decompression bombs is a
# third higher. Both can be changed.
MAX_PIXELS = 1 << 26
# Largest ratio of the longer side to the shorter. Image processors that resize the shorter side scale the longer one
# with it: CLIP's would make 224 x 2,240,000 pixels of 1 x 10,000. No photograph has such a ratio.
MAX_ASPECT = 100
_STRIP_PIXELS = 1 << 20
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")


def open_image(
    source: str | Path | bytes | PIL.Image.Image,
    *,
    max_pixels: int | None = None,
    called: str = "image",
    draft: int | None = None,
) -> PIL.Image.Image:
    """Opens an image as upright RGB, fully decoded; of an animation, the first frame.

    Args:
        source: a path, the bytes of an image file, or a Pillow image.
        max_pixels: refuse images with more pixels than this. The default, and the upper limit, is `MAX_PIXELS`, 67
            million, or Pillow's own limit against decompression bombs if that is lower.
        called: how errors name a Pillow image that has no file.
        draft: decode a JPEG file at a half, a quarter or an eighth of its size, as long as both sides keep so many
            pixels. This takes a fraction of the time, and no image is made that is larger than needed.

    Raises:
        ImageError: if the file is missing, truncated, broken, or in none of `FORMATS`; and, before decoding, if the
            image has too many pixels, no pixels, or a side more than `MAX_ASPECT` times as long as the other.
    """
    return _read(source, max_pixels, draft=draft, called=called)


@cache
def readable_formats() -> tuple[str, ...]:
    """`FORMATS`, and the photographs of iPhones where pillow-heif is installed."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return FORMATS
    register_heif_opener()
    return (*FORMATS, "HEIF")


def check_image(source: str | Path | bytes, *, max_pixels: int | None = None) -> None:
    """Raises the error that `open_image` would raise, in less time: JPEGs are decoded at an eighth of their size."""
    _read(source, max_pixels, draft=1, called="image")


def check_size(width: int, height: int) -> None:
    """Checks the size of an image.

    Raises:
        ImageError: if it has no pixels, or its longer side is more than `MAX_ASPECT` times as long as the shorter.
    """
    shorter, longer = sorted((width, height))
    if not shorter:
        raise ImageError(f"an image of {width} x {height} pixels is empty")
    if longer > MAX_ASPECT * shorter:
        raise ImageError(
            f"one of its sides is more than {MAX_ASPECT} times as long as the other, {width} x {height} pixels: "
            "crop the image"
        )


def to_rgb(image: PIL.Image.Image) -> PIL.Image.Image:
    """Converts an image to upright 8-bit RGB: EXIF orientation applied, transparency laid on white, gray values of
    more than 8 bits scaled by their range (`_gray`).

    Raises:
        ImageError: if gray values are in no known range, or Pillow cannot convert the color mode, which is rare.
    """
    try:
        if image.getexif().get(PIL.Image.ExifTags.Base.Orientation, 1) != 1:
            image = exif_transpose(image)
        if image.mode.startswith("I;16"):  # Pillow converts big-endian ones incorrectly
            image = image.convert("I")
        if image.mode in ("I", "F") or image.mode.startswith("I;16"):
            return _gray(image).convert("RGB")
        if image.has_transparency_data:
            return _on_white(image)
        return image.copy() if image.mode == "RGB" else image.convert("RGB")
    except ImageError:
        raise
    except Exception as error:  # broken EXIF blocks and palettes raise half a dozen types
        raise ImageError(f"an image of mode {image.mode} cannot be turned into RGB: {error}") from error


def regular_file(path: str | Path) -> Path:
    """Returns `path` if it is a file or a link to one. Opening a pipe instead would wait for someone to write to it.

    Raises:
        ImageError: if it is anything else.
        OSError: if it does not exist.
    """
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise ImageError("not a file")
    return Path(path)


def _gray(image: PIL.Image.Image) -> PIL.Image.Image:
    """Scales integers or floats to 8 bits; Pillow would clip them at 255 instead.

    Files do not say which range their values have: a camera's 12 bits are stored in 16, and integers or floats of 32
    bits hold 8 bits, or 0 to 1. The smallest usual range that holds the brightest value is taken.
    """
    if image.mode.startswith("I;16"):  # of which Pillow knows no extrema
        image = image.convert("I")
    extrema: Any = image.getextrema()
    darkest, brightest = extrema
    if not (darkest >= 0 and brightest <= 65535 and _is_number(image)):
        raise ImageError(
            f"its gray values range from {darkest:g} to {brightest:g}: scale them to 0 to 255, or to 0 to 65535"
        )
    if image.mode == "F" and brightest <= 1:
        return image.point(lambda value: value * 255 + 0.5).convert("L")
    if brightest <= 255:
        return image.convert("L")
    if brightest <= 4095:
        return image.point(lambda value: value * (1 / 16)).convert("L")
    return image.point(lambda value: value * (1 / 257)).convert("L")


def _is_number(image: PIL.Image.Image) -> bool:
    """Whether no value is NaN, which extrema do not show: it alone differs from itself."""
    if image.mode != "F":
        return True
    differs = PIL.ImageMath.lambda_eval(lambda bands: bands["gray"] != bands["gray"], gray=image)
    return bool(differs.getextrema() == (0, 0))


def _on_white(image: PIL.Image.Image) -> PIL.Image.Image:
    """Converts an image with transparency to RGB, strip by strip, because four copies of it are needed at a time."""
    flat = PIL.Image.new("RGB", image.size)
    rows = max(1, _STRIP_PIXELS // image.width)
    for top in range(0, image.height, rows):
        box = (0, top, image.width, min(top + rows, image.height))
        strip = image.crop(box).convert("RGBA")
        flat.paste(PIL.Image.alpha_composite(PIL.Image.new("RGBA", strip.size, "white"), strip).convert("RGB"), box)
    return flat


def decoded(image: PIL.Image.Image, called: str) -> PIL.Image.Image:
    """Decodes a Pillow image of any mode and returns it.

    Args:
        image: an image that was opened or made.
        called: how errors name an image that has no file.

    Raises:
        ImageError: as `open_image`.
    """
    with _readable(image, called):
        _decode(image, None)
    return image


def _read(
    source: str | Path | bytes | PIL.Image.Image, max_pixels: int | None, *, draft: int | None, called: str
) -> PIL.Image.Image:
    with _readable(source, called):
        if isinstance(source, PIL.Image.Image):
            return to_rgb(_decode(source, max_pixels, draft))
        if not isinstance(source, bytes):
            regular_file(source)
        file = BytesIO(source) if isinstance(source, bytes) else source
        with PIL.Image.open(file, formats=readable_formats()) as image:
            return to_rgb(_decode(image, max_pixels, draft))


@contextmanager
def _readable(source: str | Path | bytes | PIL.Image.Image, called: str = "image") -> Iterator[None]:
    """Turns any error inside of the block into an `ImageError` that names the image."""
    try:
        yield
    except PIL.Image.DecompressionBombError as error:
        raise ImageError(f"{_name(source, called)}: {error}") from error
    except FileNotFoundError as error:
        address = "; a string is a path, and nothing is fetched from addresses" if "://" in str(source) else ""
        raise ImageError(f"{_name(source, called)}: no such file{address}") from error
    except PIL.UnidentifiedImageError as error:
        reason = f"not an image, or in none of the formats {', '.join(readable_formats())}"
        if "HEIF" not in readable_formats() and _is_heic(source):
            reason = HEIC_ADVICE
        raise ImageError(f"{_name(source, called)}: {reason}") from error
    except ImageError as error:
        raise type(error)(f"{_name(source, called)}: {error}") from error.__cause__
    except Exception as error:  # Pillow's decoders raise a dozen types for broken files
        raise ImageError(f"{_name(source, called)}: {error}") from error


def _is_heic(source: str | Path | bytes | PIL.Image.Image) -> bool:
    head = b""
    if isinstance(source, bytes):
        head = source[:12]
    elif not isinstance(source, PIL.Image.Image):
        with open(source, "rb") as file:
            head = file.read(12)
    return head[4:8] == b"ftyp" and head[8:12] in _HEIC_BRANDS


def _decode(image: PIL.Image.Image, max_pixels: int | None, draft: int | None = None) -> PIL.Image.Image:
    limit = min(n for n in (max_pixels, MAX_PIXELS, PIL.Image.MAX_IMAGE_PIXELS) if n is not None)
    if image.width * image.height > limit:
        raise ImageError(f"{image.width} x {image.height} pixels are more than the {limit} allowed")
    check_size(image.width, image.height)
    if draft is not None:
        image.draft(None, (draft, draft))  # reads the whole JPEG stream, but computes some of its rows and columns
    image.load()
    return image


def _name(source: str | Path | bytes | PIL.Image.Image, called: str) -> str:
    """Returns how errors name an image."""
    if isinstance(source, bytes):
        return f"image of {len(source)} bytes"
    return getattr(source, "filename", "") or called if isinstance(source, PIL.Image.Image) else str(source)


# ---- Image inputs ----
# Turns the images that processors and the embedder are given, in any form, into one list of Pillow images.

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

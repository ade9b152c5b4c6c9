"""Opens images: from a file, bytes or a Pillow image of any mode to upright 8-bit RGB, or an error that names the
reason.

It needs Pillow alone, because published model folders carry this module, so that images are read there as in training.
"""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import PIL.Image
import PIL.ImageMath
from PIL.ImageOps import exif_transpose

from ..configuration.errors import ImageError

# Common formats of photographs and drawings. Pillow opens many more, some of them (EPS) with other programs.
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "AVIF", "BMP", "TIFF", "PPM", "JPEG2000")


# Pixels of the largest image that is decoded, 201 MB of RGB. Pillow's own limit against decompression bombs is a
# third higher. Both can be changed.
MAX_PIXELS = 1 << 26
# Largest ratio of the longer side to the shorter. Image processors that resize the shorter side scale the longer one
# with it: CLIP's would make 224 x 2,240,000 pixels of 1 x 10,000. No photograph has such a ratio.
MAX_ASPECT = 100
_STRIP_PIXELS = 1 << 20


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
        with PIL.Image.open(BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as image:
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
        formats = ", ".join(FORMATS)
        raise ImageError(f"{_name(source, called)}: not an image, or in none of the formats {formats}") from error
    except ImageError as error:
        raise type(error)(f"{_name(source, called)}: {error}") from error.__cause__
    except Exception as error:  # Pillow's decoders raise a dozen types for broken files
        raise ImageError(f"{_name(source, called)}: {error}") from error


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

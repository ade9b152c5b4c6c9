"""Opening pictures: from a file, bytes or a PIL image of any mode to upright 8-bit RGB, or an error that says why not.

Pillow alone is needed: published model folders carry this file, so that a picture is read there as it was in training.
"""

import math
import stat
from io import BytesIO
from pathlib import Path

import PIL.Image
from PIL.ImageOps import exif_transpose

from ..configuration.errors import BabelensError

# The formats people keep photographs and drawings in. Pillow opens many more, some (EPS) by starting other programs.
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "AVIF", "BMP", "TIFF", "PPM", "JPEG2000")


class ImageError(BabelensError, ValueError):
    """A picture that is missing, truncated, in an unsupported format, or otherwise unreadable."""


class ImageTooLargeError(ImageError):
    """A picture of more pixels than may be decoded; found from its header, before any pixel is."""


def open_image(source: str | Path | bytes | PIL.Image.Image, *, max_pixels: int | None = None) -> PIL.Image.Image:
    """The picture as upright RGB, fully decoded; of an animation, its first frame.

    Args:
        source: a path, the bytes of an image file, or a PIL image.
        max_pixels: refuse pictures of more pixels than this. By default (and never above) Pillow's own limit against
            decompression bombs, `PIL.Image.MAX_IMAGE_PIXELS`, about 89 million.

    Raises:
        ImageTooLargeError: before decoding, for a picture beyond the limit.
        ImageError: for a file that is missing, truncated, broken, or in none of `FORMATS`.
    """
    return _read(source, max_pixels, smallest=False)


def check_image(source: str | Path | bytes, *, max_pixels: int | None = None) -> None:
    """Raises what `open_image` would raise, for less work: JPEGs are decoded at an eighth of their size."""
    _read(source, max_pixels, smallest=True)


def to_rgb(image: PIL.Image.Image) -> PIL.Image.Image:
    """`image` upright and in 8-bit RGB: EXIF orientation applied, transparency laid on white, 16 bits scaled to 8.

    Raises:
        ImageError: for the rare colour mode that Pillow cannot convert.
    """
    try:
        image = exif_transpose(image)
        if image.mode == "I" or image.mode.startswith("I;16"):  # Pillow would clip at 255 instead of scaling
            return image.point(lambda value: value * (1 / 257)).convert("L").convert("RGB")
        if image.has_transparency_data:
            image = image.convert("RGBA")
            return PIL.Image.alpha_composite(PIL.Image.new("RGBA", image.size, "white"), image).convert("RGB")
        return image if image.mode == "RGB" else image.convert("RGB")
    except Exception as error:  # broken EXIF blocks and palettes raise half a dozen types
        raise ImageError(f"a picture of mode {image.mode} cannot be turned into RGB: {error}") from error


def regular_file(path: str | Path) -> Path:
    """`path`, when it is a file or a link to one: opening a pipe waits for someone to write to it.

    Raises:
        ImageError: for anything else.
        OSError: when there is nothing.
    """
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise ImageError("not a file")
    return Path(path)


def _read(source: str | Path | bytes | PIL.Image.Image, max_pixels: int | None, *, smallest: bool) -> PIL.Image.Image:
    try:
        if isinstance(source, PIL.Image.Image):
            return _decode(source, max_pixels, smallest)
        if not isinstance(source, bytes):
            regular_file(source)
        with PIL.Image.open(BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as image:
            return _decode(image, max_pixels, smallest)
    except PIL.Image.DecompressionBombError as error:
        raise ImageTooLargeError(f"{_name(source)}: {error}") from error
    except FileNotFoundError as error:
        raise ImageError(f"{_name(source)}: no such file") from error
    except PIL.UnidentifiedImageError as error:
        formats = ", ".join(FORMATS)
        raise ImageError(f"{_name(source)}: not a picture, or in none of the formats {formats}") from error
    except ImageError as error:
        raise type(error)(f"{_name(source)}: {error}") from error.__cause__
    except Exception as error:  # Pillow's decoders raise a dozen types for broken files
        raise ImageError(f"{_name(source)}: {error}") from error


def _decode(image: PIL.Image.Image, max_pixels: int | None, smallest: bool) -> PIL.Image.Image:
    limit = min((n for n in (max_pixels, PIL.Image.MAX_IMAGE_PIXELS) if n is not None), default=math.inf)
    if image.width * image.height > limit:
        raise ImageTooLargeError(f"{image.width} x {image.height} pixels are more than the {limit} allowed")
    if smallest:
        image.draft(None, (1, 1))  # the whole JPEG stream is read, but an eighth of its rows and columns computed
    image.load()
    return to_rgb(image)


def _name(source: str | Path | bytes | PIL.Image.Image) -> str:
    """How errors call a picture."""
    if isinstance(source, bytes):
        return f"picture of {len(source)} bytes"
    return getattr(source, "filename", "") or "picture" if isinstance(source, PIL.Image.Image) else str(source)

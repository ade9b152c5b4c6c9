"""Opening images: from a file, bytes or a PIL image of any mode to upright 8-bit RGB, or an error that says why not.

Pillow alone is needed: published model folders carry this file, so that an image is read there as it was in training.
"""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import PIL.Image
from PIL.ImageOps import exif_transpose

from ..configuration.errors import ImageError

# The formats people keep photographs and drawings in. Pillow opens many more, some (EPS) by starting other programs.
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "AVIF", "BMP", "TIFF", "PPM", "JPEG2000")


# The largest image that is decoded, 201 MB of RGB; like Pillow's own limit against decompression bombs, which is a
# third higher, it may be set to another number.
MAX_PIXELS = 1 << 26
# How often the longer side may hold the shorter one. An image processor that gives the shorter side its size makes the
# longer one in proportion: of 1 x 10,000 pixels CLIP's would make 224 x 2,240,000. No photograph is so long.
MAX_ASPECT = 100
_STRIP_PIXELS = 1 << 20


def open_image(
    source: str | Path | bytes | PIL.Image.Image, *, max_pixels: int | None = None, called: str = "image"
) -> PIL.Image.Image:
    """The image as upright RGB, fully decoded; of an animation, its first frame.

    Args:
        source: a path, the bytes of an image file, or a PIL image.
        max_pixels: refuse images of more pixels than this. By default (and never above) `MAX_PIXELS`, 67 million, or
            Pillow's own limit against decompression bombs where that is lower.
        called: how errors name a PIL image that has no file.

    Raises:
        ImageError: before decoding, for an image beyond the limit.
        ImageError: before decoding, for an image without pixels, or with a side that is more than `MAX_ASPECT`
            times as long as the other.
        ImageError: for a file that is missing, truncated, broken, or in none of `FORMATS`.
    """
    return _read(source, max_pixels, smallest=False, called=called)


def check_image(source: str | Path | bytes, *, max_pixels: int | None = None) -> None:
    """Raises what `open_image` would raise, for less work: JPEGs are decoded at an eighth of their size."""
    _read(source, max_pixels, smallest=True, called="image")


def check_size(width: int, height: int) -> None:
    """
    Raises:
        ImageError: for an image without pixels, or a longer side of more than `MAX_ASPECT` times the shorter.
    """
    shorter, longer = sorted((width, height))
    if not shorter:
        raise ImageError(f"{width} x {height} pixels are no image")
    if longer > MAX_ASPECT * shorter:
        raise ImageError(
            f"one of its sides is more than {MAX_ASPECT} times as long as the other, {width} x {height} pixels: "
            "crop the image"
        )


def to_rgb(image: PIL.Image.Image) -> PIL.Image.Image:
    """`image` upright and in 8-bit RGB: EXIF orientation applied, transparency laid on white, 16 bits scaled to 8.

    Raises:
        ImageError: for the rare colour mode that Pillow cannot convert.
    """
    try:
        if image.getexif().get(PIL.Image.ExifTags.Base.Orientation, 1) != 1:
            image = exif_transpose(image)
        if image.mode.startswith("I;16"):  # of which Pillow reads those wrongly that begin with the larger byte
            image = image.convert("I")
        if image.mode == "I" or image.mode.startswith("I;16"):  # Pillow would clip at 255 instead of scaling
            return image.point(lambda value: value * (1 / 257)).convert("L").convert("RGB")
        if image.has_transparency_data:
            return _on_white(image)
        return image.copy() if image.mode == "RGB" else image.convert("RGB")
    except Exception as error:  # broken EXIF blocks and palettes raise half a dozen types
        raise ImageError(f"an image of mode {image.mode} cannot be turned into RGB: {error}") from error


def regular_file(path: str | Path) -> Path:
    """`path`, when it is a file or a link to one: opening a pipe waits for someone to write to it.

    Raises:
        ImageError: for anything else.
        OSError: when there is nothing.
    """
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise ImageError("not a file")
    return Path(path)


def _on_white(image: PIL.Image.Image) -> PIL.Image.Image:
    """An image with transparency as RGB, strip by strip: at once it would be held four times."""
    flat = PIL.Image.new("RGB", image.size)
    rows = max(1, _STRIP_PIXELS // image.width)
    for top in range(0, image.height, rows):
        box = (0, top, image.width, min(top + rows, image.height))
        strip = image.crop(box).convert("RGBA")
        flat.paste(PIL.Image.alpha_composite(PIL.Image.new("RGBA", strip.size, "white"), strip).convert("RGB"), box)
    return flat


def decoded(image: PIL.Image.Image, called: str) -> PIL.Image.Image:
    """The same image, of whatever mode, decoded; raises what `open_image` raises.

    Args:
        image: as it was opened or made.
        called: how errors name it, where it has no file.
    """
    with _readable(image, called):
        _decode(image, None)
    return image


def _read(
    source: str | Path | bytes | PIL.Image.Image, max_pixels: int | None, *, smallest: bool, called: str
) -> PIL.Image.Image:
    with _readable(source, called):
        if isinstance(source, PIL.Image.Image):
            return to_rgb(_decode(source, max_pixels, smallest))
        if not isinstance(source, bytes):
            regular_file(source)
        with PIL.Image.open(BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as image:
            return to_rgb(_decode(image, max_pixels, smallest))


@contextmanager
def _readable(source: str | Path | bytes | PIL.Image.Image, called: str = "image") -> Iterator[None]:
    """Whatever goes wrong meanwhile is an `ImageError` that names the image."""
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


def _decode(image: PIL.Image.Image, max_pixels: int | None, smallest: bool = False) -> PIL.Image.Image:
    limit = min(n for n in (max_pixels, MAX_PIXELS, PIL.Image.MAX_IMAGE_PIXELS) if n is not None)
    if image.width * image.height > limit:
        raise ImageError(f"{image.width} x {image.height} pixels are more than the {limit} allowed")
    check_size(image.width, image.height)
    if smallest:
        image.draft(None, (1, 1))  # the whole JPEG stream is read, but an eighth of its rows and columns computed
    image.load()
    return image


def _name(source: str | Path | bytes | PIL.Image.Image, called: str) -> str:
    """How errors call an image."""
    if isinstance(source, bytes):
        return f"image of {len(source)} bytes"
    return getattr(source, "filename", "") or called if isinstance(source, PIL.Image.Image) else str(source)

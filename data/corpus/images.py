"""The images of corpora: reads them from cells {bytes, path}, and leaves bad ones out."""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import PIL.features
import PIL.Image

from ...processing.images import check_image, open_image, regular_file
from ...utils.errors import CorpusError, ImageError
from .captions import enumeration

logger = logging.getLogger(__name__)

MIN_JUDGED_IMAGES = 20  # minimum to distinguish a broken source from a few bad images


@dataclass(frozen=True)
class SkippedImage:
    """An image that was left out of a corpus: its place in the source, its image_id, and why it cannot be used."""

    place: str
    image_id: str
    reason: str


@dataclass(frozen=True)
class ImageRules:
    """Rules for images that cannot be read.

    Args:
        max_pixels: larger images are refused before they are decoded. By default 67 million pixels.
        skip: whether bad images are left out with a warning instead of raising an error. At least half of the images
            of a `Dataset` must be good (`refuse_mostly_bad`); a stream is not checked for this.
        skipped: a list to which the skipped images are added.
    """

    max_pixels: int | None = None
    skip: bool = False
    skipped: list[SkippedImage] | None = None


def readable(
    batch: dict[str, list[Any]], places: list[str], rules: ImageRules
) -> tuple[list[int], list[SkippedImage]]:
    """Returns the indices of the readable images in a batch with the columns `image` and `image_id`, and the other
    images if they are skipped."""

    def problem(cell: Any) -> str | None:
        try:
            check_image(image_source(cell), max_pixels=rules.max_pixels)
        except ImageError as error:
            return str(error)
        return None

    with ThreadPoolExecutor() as pool:
        problems = list(pool.map(problem, batch["image"]))
    skipped = [
        SkippedImage(place, image_id, problem)
        for place, image_id, problem in zip(places, batch["image_id"], problems, strict=True)
        if problem is not None
    ]
    if skipped and not rules.skip:
        raise CorpusError(f"{skipped[0].place}: {skipped[0].reason}")
    if rules.skipped is not None:
        rules.skipped.extend(skipped)
    return [index for index, problem in enumerate(problems) if problem is None], skipped


def warn_of_skipped(skipped: list[SkippedImage]) -> None:
    if skipped:
        named = [f"{image.place}: {image.reason}" for image in skipped]
        logger.warning("left out %d images: %s", len(skipped), enumeration(named))


def refuse_mostly_bad(reasons: Sequence[str], checked: int) -> None:
    """Refuses a source without a good image, or with twenty or more images that are mostly bad: then the source itself
    is wrong, such as a disk that is not mounted. `reasons` are those of the bad images, and `checked` counts all."""
    bad = len(reasons)
    if bad and (bad == checked or bad * 2 > checked >= MIN_JUDGED_IMAGES):
        raise CorpusError(
            f"{checked - bad:,} of {checked:,} images can be read, too few to leave the others out: repair the "
            f"source, or remove them from it. {enumeration(list(reasons), shown=3)}"
        )


def read_image(value: Any, place: str, *, draft: int | None = None) -> PIL.Image.Image:
    """Returns the upright RGB image in a cell {bytes, path} of a `datasets.Image` column that is not decoded. `place`
    is its name in errors, and `draft` is as in `open_image`."""
    try:
        return open_image(image_source(value), draft=draft)
    except ImageError as error:
        raise CorpusError(f"{place}: {error}") from error


def image_bytes(value: Any, place: str) -> bytes:
    """Returns the encoded image in such a cell."""
    try:
        source = image_source(value)
        return source if isinstance(source, bytes) else regular_file(source).read_bytes()
    except (ImageError, OSError) as error:
        raise CorpusError(f"{place}: {error}") from error


def stays_inside(name: str) -> bool:
    """Returns whether a file name from data stays in its folder. Links in the folder are allowed."""
    path = Path(name)
    return not path.anchor and ".." not in path.parts


def path_inside(folder: str | Path, name: str, place: str) -> Path:
    """Returns the absolute path of a file whose name comes from data."""
    if not stays_inside(name):
        raise CorpusError(f"{place}: {name!r} leaves the folder {folder}; name a file in it, without '..'")
    return Path(folder).absolute() / name


def image_source(value: Any) -> str | bytes:
    """Returns the bytes of the image in such a cell, downloaded from a remote address, or the path of a local file."""
    if value is None or (value["bytes"] is None and value["path"] is None):
        raise ImageError("no image")
    if value["bytes"] is not None or "://" not in value["path"]:
        return value["path"] if value["bytes"] is None else value["bytes"]
    try:
        with fsspec.open(value["path"]) as file:
            return file.read()
    except Exception as error:  # file system libraries raise unrelated types for an address
        raise ImageError(f"{value['path']}: {error}") from error


def digest_of(cell: Any) -> str:
    """Returns the image_id of a row without one: a digest of its image, a cell {bytes, path}, or of its features."""
    if not isinstance(cell, dict):
        return blake2b(np.asarray(cell, dtype=np.float32).tobytes(), digest_size=8).hexdigest()
    content = cell["bytes"]
    if content is None:
        try:
            content = Path(cell["path"] or "").read_bytes()
        except (OSError, ValueError):  # an address, or a file that the image check will report
            content = (cell["path"] or "").encode()
    return blake2b(content, digest_size=8).hexdigest()

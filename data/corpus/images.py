"""The image files of a corpus: which can be read, where they may lie, and what is left out if that is asked for."""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import PIL.Image

from ...configuration.errors import BadImageError, CorpusError, ImageError
from ...processing.images import check_image, open_image, regular_file
from .captions import enumeration

_JUDGED = 20  # so many images tell a broken source from one with a bad image or two

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SkippedImage:
    """An image left out of a corpus: where it stood in the source, its `image_id`, and what is wrong with it."""

    place: str
    image_id: str
    reason: str


@dataclass(frozen=True)
class ImageRules:
    """What becomes of images that cannot be read.

    Args:
        max_pixels: a larger image is refused before it is decoded; by default 67 million pixels.
        skip: leave bad images out, named in a warning, instead of raising an error at the first. Of a corpus at
            hand most must be good (`refuse_mostly_bad`); a stream cannot tell.
        skipped: receives what was left out. A stream that is read for long grows it without end.
    """

    max_pixels: int | None = None
    skip: bool = False
    skipped: list[SkippedImage] | None = None


def readable(
    batch: dict[str, list[Any]], places: list[str], rules: ImageRules
) -> tuple[list[int], list[SkippedImage]]:
    """Which images of a batch of `image` and `image_id` can be read. The others are refused, or noted as skipped."""
    with ThreadPoolExecutor() as pool:
        problems = list(pool.map(partial(_problem, max_pixels=rules.max_pixels), batch["image"]))
    skipped = [
        SkippedImage(place, image_id, problem)
        for place, image_id, problem in zip(places, batch["image_id"], problems, strict=True)
        if problem is not None
    ]
    if skipped and not rules.skip:
        raise BadImageError(f"{skipped[0].place}: {skipped[0].reason}")
    if rules.skipped is not None:
        rules.skipped.extend(skipped)
    return [index for index, problem in enumerate(problems) if problem is None], skipped


def warn_of_skipped(skipped: list[SkippedImage]) -> None:
    """Counts and names what was left out, if anything was."""
    if skipped:
        named = [f"{image.place}: {image.reason}" for image in skipped]
        logger.warning("left out %d images: %s", len(skipped), enumeration(named))


def refuse_mostly_bad(reasons: Sequence[str], checked: int) -> None:
    """Skipping is for a few bad images among many. Where hardly any can be read, the source itself is wrong: a disk
    that is not there, a download that was cut off, another folder. What is left would not be what was asked for.

    Args:
        reasons: what is wrong with the bad ones, with their places.
        checked: how many images there are, good and bad.

    Raises:
        BadImageError: when no image is left, or when more than half of twenty or more are bad.
    """
    if reasons and (len(reasons) == checked or len(reasons) * 2 > checked >= _JUDGED):
        raise BadImageError(
            f"{checked - len(reasons):,} of {checked:,} images can be read, too few to leave the others out: mend "
            f"the source, or take them out of it. {enumeration(list(reasons), shown=3)}"
        )


def read_image(value: Any, place: str) -> PIL.Image.Image:
    """The upright RGB image in a cell of an undecoded `datasets.Image` column ({bytes, path}).

    Raises:
        BadImageError: when it cannot be read; the message starts with `place`.
    """
    try:
        return open_image(_image_source(value))
    except ImageError as error:
        raise BadImageError(f"{place}: {error}") from error


def image_bytes(value: Any, place: str) -> bytes:
    """The file in such a cell, undecoded.

    Raises:
        BadImageError: as `read_image`.
    """
    try:
        source = _image_source(value)
        return source if isinstance(source, bytes) else regular_file(source).read_bytes()
    except (ImageError, OSError) as error:
        raise BadImageError(f"{place}: {error}") from error


def stays_inside(name: str) -> bool:
    """Whether a file name that came with data stays in the folder that it is relative to.

    Links in the folder are not looked at: people who keep images elsewhere make them.
    """
    path = Path(name)
    return not path.anchor and ".." not in path.parts


def path_inside(folder: str | Path, name: str, place: str) -> Path:
    """The absolute path of a file that data name.

    Raises:
        CorpusError: for a name that leaves the folder: data from elsewhere could otherwise read any file here.
    """
    if not stays_inside(name):
        raise CorpusError(f"{place}: {name!r} leaves the folder {folder}; name a file in it, without '..'")
    return Path(folder).absolute() / name


def _problem(value: Any, max_pixels: int | None) -> str | None:
    """What is wrong with an image."""
    try:
        check_image(_image_source(value), max_pixels=max_pixels)
    except ImageError as error:
        return str(error)
    return None


def _image_source(value: Any) -> str | bytes:
    """Bytes, or the path of a local file."""
    if value is None or (value["bytes"] is None and value["path"] is None):
        raise ImageError("no image")
    if value["bytes"] is not None or "://" not in value["path"]:
        return value["path"] if value["bytes"] is None else value["bytes"]
    try:
        with fsspec.open(value["path"]) as file:
            return file.read()
    except Exception as error:  # what the libraries of file systems raise for an address has no common type
        raise ImageError(f"{value['path']}: {error}") from error

"""Galleries: queries with what a model finds, images for a text and texts for an image, and their file beside the
results. `babelens.reports` shows such rows on a page.

A report `evaluation/validation.json` has its rows in `evaluation/validation.gallery.json`, with small images in WebP.
"""

import base64
import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from ..configuration.errors import ComparisonError
from ..data.batching.retrieval_sets import RetrievalSet
from ..data.batching.views import Images

_ENDING = ".gallery.json"
_SIDE = 128  # pixels, at most, of an image in the file
_QUALITY = 80
_KEYS = ("query", "language", "gloss", "heading", "rank", "scores", "right")
_KEYS_OF_TEXTS = ("language", "texts", "rank", "scores", "right")


@dataclass(frozen=True)
class GalleryRow:
    """A query and the images found for it, best first.

    Args:
        query: the text searched for.
        language: its BCP-47 tag.
        images: the best images.
        scores: their scores.
        right: for each image, whether it is a right one.
        rank: the rank of the best right image, shown when it is not among `images`.
        gloss: the query in English, which is shown beside the query.
        heading: a line above the first row of a group of rows.
        label: whose result it is, such as a model, where a gallery has several.
    """

    query: str
    language: str
    images: Sequence[Image.Image]
    scores: Sequence[float]
    right: Sequence[bool]
    rank: int | None = None
    gloss: str | None = None
    heading: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class TextsRow:
    """An image as the query, and the texts found for it, best first.

    Args:
        image: the image.
        language: the BCP-47 tag of the texts.
        texts: the best texts.
        scores, right, rank, heading, label: as in `GalleryRow`, of texts.
    """

    image: Image.Image
    language: str
    texts: Sequence[str]
    scores: Sequence[float]
    right: Sequence[bool]
    rank: int | None = None
    heading: str | None = None
    label: str | None = None


def found_images(
    queries: RetrievalSet,
    images: Images,
    image_embeddings: np.ndarray,
    text_embeddings: np.ndarray,
    text: int,
    *,
    top: int,
    rank: int,
    gloss: str | None = None,
    heading: str | None = None,
) -> GalleryRow:
    """A query with the images that are nearest to it, in the order of their cosines.

    Args:
        queries: the texts and images.
        images: the images [n_images].
        image_embeddings, text_embeddings: their embeddings, [n_images, d] and [n_texts, d].
        text: the index of the query.
        top: how many images.
        rank, gloss, heading: as in `GalleryRow`.
    """
    scores = image_embeddings @ text_embeddings[text]
    best = np.argsort(-scores, kind="stable")[:top]
    return GalleryRow(
        query=queries.texts[text],
        language=queries.language,
        images=[images[int(image)] for image in best],
        scores=scores[best].tolist(),
        right=[int(image) in queries.text_to_images[text] for image in best],
        rank=rank,
        gloss=gloss,
        heading=heading,
    )


def found_texts(
    queries: RetrievalSet,
    images: Images,
    image_embeddings: np.ndarray,
    text_embeddings: np.ndarray,
    image: int,
    *,
    top: int,
    rank: int,
) -> TextsRow:
    """An image with the texts that are nearest to it, in the order of their cosines; arguments as those of
    `found_images`, with the index of the image."""
    scores = text_embeddings @ image_embeddings[image]
    best = np.argsort(-scores, kind="stable")[:top]
    return TextsRow(
        image=images[image],
        language=queries.language,
        texts=[queries.texts[int(text)] for text in best],
        scores=scores[best].tolist(),
        right=[image in queries.text_to_images[int(text)] for text in best],
        rank=rank,
    )


def some_texts(queries: RetrievalSet, count: int) -> list[int]:
    """The indices of some texts about different images; a hash of the image_id chooses them, independently of the
    results and of the language."""
    first = {image: text for text, image in reversed(list(enumerate(queries.text_image_ids)))}
    chosen = sorted(first, key=lambda image: hashlib.sha256(image.encode("utf-8", "surrogatepass")).digest())
    return [first[image] for image in chosen[:count]]


def gallery_file(results: str | Path) -> Path:
    """The file of the queries that belong to a file of results."""
    return Path(results).with_suffix(_ENDING)


@dataclass(frozen=True)
class Gallery:
    """What a file of queries with their images holds.

    Args:
        rows: the parts of each `GalleryRow` by their names; the images in WebP, as base64.
        credits: lines that name the owners of the images.
        texts: the parts of each `TextsRow`.
    """

    rows: list[dict[str, Any]]
    credits: list[str]
    texts: list[dict[str, Any]] = field(default_factory=list)


def gallery_of(rows: Sequence[GalleryRow | TextsRow], credits: Sequence[str] = ()) -> Gallery:
    """Rows as the file of a gallery holds them.

    Args:
        rows: of both kinds.
        credits: lines that name the owners of the images.
    """
    return Gallery(
        rows=[
            {key: getattr(row, key) for key in (*_KEYS, "label")} | {"images": [webp_of(each) for each in row.images]}
            for row in rows
            if isinstance(row, GalleryRow)
        ],
        credits=list(credits),
        texts=[
            {key: getattr(row, key) for key in (*_KEYS_OF_TEXTS, "label")} | {"image": webp_of(row.image)}
            for row in rows
            if isinstance(row, TextsRow)
        ],
    )


def write_gallery(file: Path, rows: Sequence[GalleryRow | TextsRow], credits: Sequence[str] = ()) -> None:
    """Writes queries with what is found for them as JSON; arguments as those of `gallery_of`."""
    file.write_text(json.dumps(asdict(gallery_of(rows, credits))), encoding="ascii")


def read_gallery(file: Path) -> Gallery | None:
    """What `write_gallery` wrote; None where there is no file.

    Raises:
        ComparisonError: for a file that is damaged.
    """
    if not file.is_file():
        return None
    try:
        gallery = Gallery(**json.loads(file.read_text(encoding="ascii")))
        for row in gallery.rows:
            if not {*_KEYS} <= row.keys() or len({len(row[key]) for key in ("images", "scores", "right")}) > 1:
                raise ValueError("a row lacks a part")
        for row in gallery.texts:
            if (
                not {*_KEYS_OF_TEXTS, "image"} <= row.keys()
                or len({len(row[k]) for k in ("texts", "scores", "right")}) > 1
            ):
                raise ValueError("a row lacks a part")
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise ComparisonError(f"{file} is damaged, so that the images in it cannot be shown: {error}") from error
    return gallery


def webp_of(image: Image.Image, side: int = _SIDE) -> str:
    """An image for a page: WebP of at most `side` pixels on each side, as base64."""
    small = image.convert("RGB")
    if max(small.size) > side:
        small = ImageOps.contain(small, (side, side))
    stream = io.BytesIO()
    small.save(stream, "WEBP", quality=_QUALITY, method=4)
    return base64.b64encode(stream.getvalue()).decode("ascii")

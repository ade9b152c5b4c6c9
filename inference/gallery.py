"""The rows of galleries: queries with what a model found for them, images for a text, or texts for an image.
`babelens.reports` shows such rows on a page."""

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image


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

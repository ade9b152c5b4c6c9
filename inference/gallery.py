"""Contact sheets; and the rows of galleries: queries with what a model found for them, images for a text, or texts for
an image. `babelens.reports` shows such rows on a page."""

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageOps

from .lettering import Lettering

_INK = "#1a1a1a"
_GAP = 8
_LABEL_SIZE = 12
# Font size to line height.
_LEADING = 1.35


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


def contact_sheet(
    images: Sequence[Image.Image],
    labels: Sequence[str] | None = None,
    *,
    columns: int = 8,
    cell: int = 96,
    languages: Sequence[str] | None = None,
    lettering: Lettering | None = None,
) -> Image.Image:
    """Images in a grid on white, each scaled to fit its cell, with a label below.

    Args:
        images: one or more images.
        labels: a line for each image, shortened to its cell.
        columns: images in a row.
        cell: side of an image in pixels.
        languages: the language of each label, English by default; a label without letters gives way to its language
            tag.
        lettering: the letters to write with, by default Pillow's own.

    Raises:
        ValueError: when there are no images, or not as many labels.
    """
    if not images:
        raise ValueError("a contact sheet needs at least one image")
    if labels is not None and len(labels) != len(images):
        raise ValueError(f"{len(images)} images came with {len(labels)} labels")
    columns, lettering = min(columns, len(images)), lettering or Lettering()
    rows = -(-len(images) // columns)
    pitch_x, pitch_y = cell + _GAP, cell + _GAP + (round(_LABEL_SIZE * _LEADING) if labels is not None else 0)
    sheet = Image.new("RGB", (columns * pitch_x + _GAP, rows * pitch_y + _GAP), "white")
    canvas = ImageDraw.Draw(sheet)
    for position, image in enumerate(images):
        x, y = _GAP + position % columns * pitch_x, _GAP + position // columns * pitch_y
        scaled = ImageOps.contain(image.convert("RGB"), (cell, cell))
        sheet.paste(scaled, (x + (cell - scaled.width) // 2, y + (cell - scaled.height) // 2))
        if labels is not None:
            text, language = labels[position], languages[position] if languages else "en"
            if not lettering.can_write(text, language):
                text, language = f"[{language}]", "en"
            line = lettering.shortened(text, language, _LABEL_SIZE, cell)
            lettering.draw(canvas, (x, y + cell + _LABEL_SIZE), line, language, _LABEL_SIZE, _INK)
    return sheet

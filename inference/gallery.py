"""Images of results: contact sheets, and galleries of queries with the images a model found for them."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageOps

from .lettering import Lettering

_INK, _PALE, _RIGHT = "#1a1a1a", "#737373", "#1a9850"
_GAP = 8
_FRAME = 4
_QUERY_WIDTH = 240
_QUERY_SIZE, _LABEL_SIZE, _HEADING_SIZE = 18, 12, 20
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
        gloss: the query in English, which is shown beside the query, or instead of it when no font can write it.
        heading: a line above the first row of a group of rows.
    """

    query: str
    language: str
    images: Sequence[Image.Image]
    scores: Sequence[float]
    right: Sequence[bool]
    rank: int | None = None
    gloss: str | None = None
    heading: str | None = None


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
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    pitch_x, pitch_y = cell + _GAP, cell + _GAP + (_line(_LABEL_SIZE) if labels is not None else 0)
    sheet = _Sheet(columns * pitch_x + _GAP, rows * pitch_y + _GAP, lettering or Lettering())
    for position, image in enumerate(images):
        x, y = _GAP + position % columns * pitch_x, _GAP + position // columns * pitch_y
        sheet.paste(image, x, y, cell)
        if labels is not None:
            language = languages[position] if languages else "en"
            sheet.write(labels[position], x, y + cell, _LABEL_SIZE, cell, language=language)
    return sheet.image


def retrieval_gallery(
    rows: Sequence[GalleryRow], *, cell: int = 96, lettering: Lettering | None = None, credits: Sequence[str] = ()
) -> Image.Image:
    """Queries with their best images and scores, one query a row; right images are framed in green.

    Args:
        rows: one or more queries.
        cell: side of an image in pixels.
        lettering: the fonts to write with, `Lettering.fetch(languages)`. A query that they cannot write is shown by
            its language tag and its English gloss.
        credits: lines below the gallery that name the owners of the images. That of the fonts is added.

    Raises:
        ValueError: when there are no rows.
    """
    if not rows:
        raise ValueError("a gallery needs at least one query")
    lettering = lettering or Lettering()
    credits = [line if lettering.can_write(line, "en") else _without_accents(line) for line in credits]
    credits += [lettering.attribution] if lettering.attribution else []
    row_height = cell + _line(_LABEL_SIZE) + 2 * _GAP
    heading_height = _line(_HEADING_SIZE) + _GAP
    height = sum(row_height + (heading_height if row.heading else 0) for row in rows)
    height += len(credits) * _line(_LABEL_SIZE) + 2 * _GAP
    width = _QUERY_WIDTH + max(len(row.images) for row in rows) * (cell + _GAP) + 2 * _GAP
    sheet = _Sheet(width, height, lettering)
    y = _GAP
    for row in rows:
        if row.heading:
            sheet.write(row.heading, _GAP, y, _HEADING_SIZE, width)
            y += heading_height
        _draw_query(sheet, row, y)
        _draw_images(sheet, row, y, cell)
        y += row_height
    for credit in credits:
        y = sheet.write(credit, _GAP, y, _LABEL_SIZE, width - 2 * _GAP, color=_PALE)
    return sheet.image


def _draw_query(sheet: "_Sheet", row: GalleryRow, y: int) -> None:
    """Writes the query, its language and English gloss, and the right image's rank when that image is not shown."""
    width = _QUERY_WIDTH - 2 * _GAP
    if sheet.lettering.can_write(row.query, row.language):
        for line in sheet.lettering.wrap(row.query, row.language, _QUERY_SIZE, width, max_lines=2):
            y = sheet.write(line, _GAP, y, _QUERY_SIZE, width, language=row.language)
    note = f"[{row.language}] {row.gloss or ''}".rstrip()
    for line in sheet.lettering.wrap(note, "en", _LABEL_SIZE, width, max_lines=2):
        y = sheet.write(line, _GAP, y, _LABEL_SIZE, width, color=_PALE)
    if row.rank is not None and not any(row.right):
        sheet.write(f"right image at rank {row.rank}", _GAP, y, _LABEL_SIZE, width, color=_PALE)


def _draw_images(sheet: "_Sheet", row: GalleryRow, y: int, cell: int) -> None:
    x = _GAP + _QUERY_WIDTH
    for image, score, right in zip(row.images, row.scores, row.right, strict=True):
        sheet.paste(image, x, y, cell)
        if right:
            sheet.frame(x, y, cell)
        sheet.write(f"{score:.3f}", x, y + cell + _FRAME, _LABEL_SIZE, cell, color=_RIGHT if right else _PALE)
        x += cell + _GAP


class _Sheet:
    """A white sheet, and the operations that draw on it."""

    def __init__(self, width: int, height: int, lettering: Lettering) -> None:
        self.image = Image.new("RGB", (width, height), "white")
        self.lettering = lettering
        self._canvas = ImageDraw.Draw(self.image)

    def paste(self, image: Image.Image, x: int, y: int, cell: int) -> None:
        """The image in the middle of a square cell, scaled to fit."""
        scaled = ImageOps.contain(image.convert("RGB"), (cell, cell))
        self.image.paste(scaled, (x + (cell - scaled.width) // 2, y + (cell - scaled.height) // 2))

    def frame(self, x: int, y: int, cell: int) -> None:
        box = (x - _FRAME, y - _FRAME, x + cell + _FRAME - 1, y + cell + _FRAME - 1)
        self._canvas.rectangle(box, outline=_RIGHT, width=_FRAME)

    def write(
        self, text: str, x: int, y: int, size: int, width: int, *, language: str = "en", color: str = _INK
    ) -> int:
        """Writes one line below `y`, shortened to the width, and returns where the next line starts.

        A text that the fonts cannot write is replaced by its language tag.
        """
        if not self.lettering.can_write(text, language):
            text, language = f"[{language}]", "en"
        for line in self.lettering.wrap(text, language, size, width, max_lines=1):
            self.lettering.draw(self._canvas, (x, y + size), line, language, size, color)
        return y + _line(size)


def _without_accents(text: str) -> str:
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def _line(size: int) -> int:
    return round(size * _LEADING)

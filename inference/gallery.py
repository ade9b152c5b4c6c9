"""Images of results: contact sheets, and galleries of queries with what a model found for them: images for a text, or
texts for an image."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageOps

from .lettering import Lettering

_INK, _PALE, _RIGHT = "#1a1a1a", "#737373", "#1a9850"
_GAP = 8
_FRAME = 4
_QUERY_WIDTH = 240
_TEXTS_WIDTH, _SCORE_WIDTH = 560, 44
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
    rows: Sequence[GalleryRow | TextsRow],
    *,
    cell: int = 96,
    lettering: Lettering | None = None,
    credits: Sequence[str] = (),
) -> Image.Image:
    """Queries with their best images, or texts, and scores, one query a row; right ones are framed in green.

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
    heights = [_height(row, cell) for row in rows]
    heading_height = _line(_HEADING_SIZE) + _GAP
    height = sum(heights) + sum(heading_height for row in rows if row.heading)
    height += len(credits) * _line(_LABEL_SIZE) + 2 * _GAP
    images = (len(row.images) if isinstance(row, GalleryRow) else 0 for row in rows)
    width = _QUERY_WIDTH + max(max(images) * (cell + _GAP), _least_width(rows)) + 2 * _GAP
    sheet = _Sheet(width, height, lettering)
    y = _GAP
    for row, row_height in zip(rows, heights, strict=True):
        if row.heading:
            sheet.write(row.heading, _GAP, y, _HEADING_SIZE, width)
            y += heading_height
        if isinstance(row, TextsRow):
            _draw_texts(sheet, row, y, cell)
        else:
            _draw_query(sheet, row, y)
            _draw_images(sheet, row, y, cell)
        y += row_height
    for credit in credits:
        y = sheet.write(credit, _GAP, y, _LABEL_SIZE, width - 2 * _GAP, color=_PALE)
    return sheet.image


def _height(row: GalleryRow | TextsRow, cell: int) -> int:
    lines = len(row.texts) * (_line(_LABEL_SIZE) + _GAP) if isinstance(row, TextsRow) else 0
    return max(cell + _line(_LABEL_SIZE) + 2 * _GAP, lines + _GAP)


def _least_width(rows: Sequence[GalleryRow | TextsRow]) -> int:
    return _TEXTS_WIDTH if any(isinstance(row, TextsRow) for row in rows) else 0


def _draw_query(sheet: "_Sheet", row: GalleryRow, y: int) -> None:
    """Writes whose result it is, the query, its language and English gloss, and the right image's rank when that image
    is not shown."""
    width = _QUERY_WIDTH - 2 * _GAP
    if row.label:
        y = sheet.write(row.label, _GAP, y, _LABEL_SIZE, width)
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


def _draw_texts(sheet: "_Sheet", row: TextsRow, y: int, cell: int) -> None:
    """The image, the language and whose result it is beside it, and the texts, each in a line."""
    sheet.paste(row.image, _GAP, y, cell)
    beside, width = 2 * _GAP + cell, _QUERY_WIDTH - cell - 2 * _GAP
    notes = [row.label or "", f"[{row.language}]"]
    if row.rank is not None and not any(row.right):
        notes.append(f"right text at {row.rank}")
    note_y = y
    for note in filter(None, notes):
        for line in sheet.lettering.wrap(note, "en", _LABEL_SIZE, width, max_lines=2):
            note_y = sheet.write(line, beside, note_y, _LABEL_SIZE, width, color=_INK if note == row.label else _PALE)
    x, line_height = _GAP + _QUERY_WIDTH, _line(_LABEL_SIZE) + _GAP
    for text, score, right in zip(row.texts, row.scores, row.right, strict=True):
        color = _RIGHT if right else _PALE
        sheet.write(f"{score:.3f}", x, y, _LABEL_SIZE, _SCORE_WIDTH, color=color)
        sheet.write(text, x + _SCORE_WIDTH, y, _LABEL_SIZE, _TEXTS_WIDTH - _SCORE_WIDTH - _GAP, language=row.language)
        if right:
            sheet.frame(x, y, _TEXTS_WIDTH - _GAP, _line(_LABEL_SIZE))
        y += line_height


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

    def frame(self, x: int, y: int, width: int, height: int | None = None) -> None:
        """A frame around a box, by default a square; that of a line of text is thinner, for the lines beside it."""
        thick = _FRAME if height is None else _FRAME // 2
        height = width if height is None else height
        box = (x - thick, y - thick, x + width + thick - 1, y + height + thick - 1)
        self._canvas.rectangle(box, outline=_RIGHT, width=thick)

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

"""What of held-out data is in the training data as well, where a model is not tested but asked what it was shown."""

import hashlib
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow.compute as pc
from datasets import Dataset, Image, IterableDataset
from PIL.Image import Resampling

from ...utils.errors import BadImageError
from .corpus import captions_of
from .images import image_bytes, read_image

# Images that only look alike are searched for among so many, of so many bytes: decoding them takes about a minute.
_DECODED, _DECODED_BYTES = 10_000, 500_000_000
_SIDE, _TOLERANCE = 8, 4  # pixels, and levels of 256 by which JPEG and resizing change the mean of a part
_ROWS = 1000  # that are read at a time
_NOT_LETTERS = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Overlap:
    """How many held-out items are in the training data as well.

    Attributes:
        kind: `images` or `texts`.
        total: number of held-out items; of texts, each is counted once.
        same: how many are equal: images by their files, texts word for word.
        alike: how many others are alike: images by their pixels at 8 × 8, texts but for case and punctuation; None if
            they were not searched for, because there are too many images to decode.
        unchecked: the training data that were not compared, such as streams.
    """

    kind: str
    total: int
    same: int
    alike: int | None
    unchecked: tuple[str, ...] = ()

    @property
    def is_notable(self) -> bool:
        """Whether results on the held-out data may be too good. One text in a hundred is a name or a single word."""
        return self.same + (self.alike or 0) > (0.01 * self.total if self.kind == "texts" else 0)

    def __str__(self) -> str:
        how = "as 8 × 8 pixels" if self.kind == "images" else "but for case and punctuation"
        found = f"{self.same:,} of the {self.total:,} held-out {self.kind} are also in the training data"
        if self.alike is None:
            found += "; images that only look alike were not searched for, among so many"
        else:
            found += f", and {self.alike:,} more are equal {how}"
        return found + (f" ({', '.join(self.unchecked)} not compared)" if self.unchecked else "")


def corpus_overlaps(
    held_out: Dataset,
    *,
    images: Mapping[str, Dataset | IterableDataset],
    texts: Mapping[str, Dataset | IterableDataset],
) -> list[Overlap]:
    """What of a held-out corpus is in training corpora: of its images, and of its captions.

    Args:
        held_out: the corpus.
        images: the corpora whose images are trained on, by name. Streams, and features in the place of images, are not
            compared.
        texts: the corpora of text tasks by name.

    Returns:
        An overlap of images, one of texts, or both; none where there is nothing to compare.
    """
    found = []
    if images and "image" in held_out.column_names:
        at_hand = {name: data for name, data in images.items() if _has(data, "image")}
        found.append(shared_images(held_out, list(at_hand.values()), unchecked=[*images.keys() - at_hand.keys()]))
    if texts and "captions" in held_out.column_names:
        at_hand = {name: data for name, data in texts.items() if _has(data, "captions")}
        trained = chain.from_iterable(_captions(corpus) for corpus in at_hand.values())
        found.append(shared_texts(_captions(held_out), trained, unchecked=[*texts.keys() - at_hand.keys()]))
    return found


def _has(data: Any, column: str) -> bool:
    return isinstance(data, Dataset) and column in data.column_names


def _captions(corpus: Dataset) -> list[str]:
    return pc.unique(pc.struct_field(pc.list_flatten(captions_of(corpus)), "text")).to_pylist()


def shared_texts(held_out: Iterable[str], training: Iterable[str], *, unchecked: Sequence[str] = ()) -> Overlap:
    """Counts held-out texts that are trained on.

    Args:
        held_out: texts; equal ones count once.
        training: the texts that are trained on.
        unchecked: names of training data that are not compared.
    """
    texts = dict.fromkeys(map(_as_written, held_out))
    words = {_letters(text) for text in texts}
    same: set[str] = set()
    alike: set[str] = set()
    for text in map(_as_written, training):
        if text in texts:
            same.add(text)
        elif (letters := _letters(text)) in words:
            alike.add(letters)
    others = sum(text not in same and _letters(text) in alike for text in texts)
    return Overlap("texts", len(texts), len(same), others, tuple(unchecked))


def distinct_rows(corpus: Dataset) -> Dataset:
    """The corpus without rows whose captions are those of an earlier row: what is held out of it is not trained on in
    another row."""
    first: dict[tuple[tuple[str, str], ...], int] = {}
    rows = chain.from_iterable(chunk.to_pylist() for chunk in captions_of(corpus).chunks)
    for row, captions in enumerate(rows):
        first.setdefault(tuple((each["language"], each["text"]) for each in captions), row)
    return corpus if len(first) == len(corpus) else corpus.select(list(first.values()))


def _as_written(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def _letters(text: str) -> str:
    return _NOT_LETTERS.sub("", text.casefold()) or text


def shared_images(held_out: Dataset, training: Sequence[Dataset], *, unchecked: Sequence[str] = ()) -> Overlap:
    """Counts held-out images that are trained on.

    Of the training images, only files as large as a held-out one are read. Images are decoded only where there are few
    of them. Those that cannot be read are left out, and refused when they are used.

    Args:
        held_out: a corpus with a column `image`.
        training: corpora with such a column.
        unchecked: names of training data that are not compared.
    """
    ours, *theirs = [_Files(corpus) for corpus in (held_out, *training)]
    wanted = ours.digests(np.arange(len(ours.sizes)))
    sizes = [size for size in set(ours.sizes.tolist()) if size >= 0]
    known = {
        digest for files in theirs for digest in files.digests(np.flatnonzero(np.isin(files.sizes, sizes))).values()
    }
    others = [row for row in range(len(ours.sizes)) if wanted.get(row) not in known]
    alike = None
    everything = [ours, *theirs]
    count = sum(len(files.sizes) for files in everything)
    if count <= _DECODED and sum(files.sizes.clip(0).sum() for files in everything) <= _DECODED_BYTES:
        trained = np.concatenate([np.empty((0, 3 * _SIDE**2), np.int16), *(files.thumbnails() for files in theirs)])
        shown = ours.thumbnails(others)
        alike = sum(bool((np.abs(trained - each).max(1) <= _TOLERANCE).any()) for each in shown) if len(trained) else 0
    return Overlap("images", len(ours.sizes), len(ours.sizes) - len(others), alike, tuple(unchecked))


class _Files:
    """The image files of a corpus, in its rows or where they lead to."""

    def __init__(self, corpus: Dataset) -> None:
        self.corpus = corpus.select_columns("image").cast_column("image", Image(decode=False))
        # In bytes; -1 for those of a path that is not on this machine, which are not compared.
        self.sizes = np.array(list(self._sizes()), dtype=np.int64)

    def _sizes(self) -> Iterator[int]:
        for table in self.corpus.with_format("arrow").iter(_ROWS):
            cells = table["image"].combine_chunks()
            lengths = pc.binary_length(cells.field("bytes")).to_pylist()
            for length, path in zip(lengths, cells.field("path").to_pylist(), strict=True):
                yield length if length is not None else _size(path)

    def _read(self, rows: Iterable[int], read: Callable[[Any, str], Any]) -> Iterator[tuple[int, Any]]:
        for row in rows:
            try:
                yield row, read(self.corpus[int(row)]["image"], f"row {row}")
            except BadImageError:
                continue

    def digests(self, rows: np.ndarray) -> dict[int, bytes]:
        """The digest of each file that can be read, by its row."""
        rows = rows[self.sizes[rows] >= 0]
        return {int(row): hashlib.sha256(file).digest() for row, file in self._read(rows, image_bytes)}

    def thumbnails(self, rows: Iterable[int] | None = None) -> np.ndarray:
        """The pixels of the images that can be read, resized to 8 × 8 [n, 192]."""

        def resized(cell: Any, place: str) -> np.ndarray:
            image = read_image(cell, place, draft=8 * _SIDE).resize((_SIDE, _SIDE), Resampling.BOX)
            return np.asarray(image, dtype=np.int16).ravel()

        found = [pixels for _, pixels in self._read(range(len(self.sizes)) if rows is None else rows, resized)]
        return np.array(found, dtype=np.int16).reshape(-1, 3 * _SIDE**2)


def _size(path: str | None) -> int:
    try:
        return -1 if path is None else os.path.getsize(path)
    except OSError:
        return -1

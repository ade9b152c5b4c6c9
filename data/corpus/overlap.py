"""Finds overlap between training and test data: images by their files, texts by exact match."""

import hashlib
import os
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow.compute as pc
from datasets import Dataset, Image, IterableDataset

from ...utils.errors import CorpusError
from .corpus import captions_of
from .images import image_bytes

Corpora = Mapping[str, Dataset | IterableDataset]  # by name


@dataclass(frozen=True)
class Overlap:
    """Number of distinct held-out `images` or `texts`, and of those that are also in the training data; `unchecked`
    data, such as streams, were not compared."""

    kind: str
    total: int
    same: int
    unchecked: tuple[str, ...] = ()

    @property
    def is_notable(self) -> bool:
        """Returns whether results may be too good. One text in a hundred is a name or a single word."""
        return self.same > (0.01 * self.total if self.kind == "texts" else 0)

    def __str__(self) -> str:
        found = f"{self.same:,} of the {self.total:,} held-out {self.kind} are also in the training data"
        return found + (f" ({', '.join(self.unchecked)} not compared)" if self.unchecked else "")


def corpus_overlaps(held_out: Dataset, *, images: Corpora, texts: Corpora) -> list[Overlap]:
    """Compares a held-out corpus with the images and the texts that are trained on, except streams and features."""
    found = []
    if images and "image" in held_out.column_names:
        at_hand, others = _with_column(images, "image")
        ours = list(_image_files(held_out))
        sizes = {size for size, _ in ours}  # only files as large as a held-out one are read
        trained = {digest for corpus in at_hand for _, digest in _image_files(corpus, sizes)}
        found.append(Overlap("images", len(held_out), sum(digest in trained for _, digest in ours), others))
    if texts and "captions" in held_out.column_names:
        at_hand, others = _with_column(texts, "captions")
        distinct = _captions(held_out)
        same = distinct & {text for corpus in at_hand for text in _captions(corpus)}
        found.append(Overlap("texts", len(distinct), len(same), others))
    return found


def _with_column(given: Corpora, column: str) -> tuple[list[Dataset], tuple[str, ...]]:
    found = {name: data for name, data in given.items() if isinstance(data, Dataset) and column in data.column_names}
    return list(found.values()), tuple(name for name in given if name not in found)


def _captions(corpus: Dataset) -> set[str]:
    texts = pc.unique(pc.struct_field(pc.list_flatten(captions_of(corpus)), "text")).to_pylist()
    return {" ".join(unicodedata.normalize("NFC", text).split()) for text in texts}


def _image_files(corpus: Dataset, sizes: Collection[int] | None = None) -> Iterator[tuple[int, bytes]]:
    """Yields (size, digest) of the readable local image files; if `sizes` is given, only files of those sizes."""
    for row, cell in enumerate(corpus.select_columns("image").cast_column("image", Image(decode=False))):
        try:
            image = cell["image"]
            size = os.path.getsize(image["path"]) if image["bytes"] is None else len(image["bytes"])
            if sizes is None or size in sizes:
                yield size, hashlib.sha256(image_bytes(image, f"row {row}")).digest()
        except (CorpusError, OSError, TypeError):  # not on this machine, or not an image: refused on use
            continue

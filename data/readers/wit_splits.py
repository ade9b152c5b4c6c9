"""Splits of WIT's training files into images for training, validation and test, as MURAL's authors made theirs (Jain
et al. 2021, section 2.3, appendix A.3): in each language 5,000, 3,000 or 1,000 images for validation and as many for
the test, and no image in two of them. Their own splits were not published. Two things are ours: a language has the
largest of these sizes that is a fifth of its images at most, and a fifth where it has fewer than 5,000; and an image
is in the same split in all of its languages. Images are drawn by a hash of their address, rare languages first.
"""

from hashlib import blake2b
from typing import Literal

import numpy as np
from datasets import Dataset

from ...configuration.errors import CorpusError
from ..corpus.caption_index import CaptionIndex
from ..corpus.corpus import CAPTIONS

WitSplit = Literal["train", "validation", "test"]
_SIZES = (5_000, 3_000, 1_000)
_PARTS = {"train": 0, "validation": 1, "test": 2}


def wit_split(corpus: Dataset, split: WitSplit) -> Dataset:
    """The images of a split, from a corpus of all of them with `image_id` and `captions`.

    Raises:
        CorpusError: for a split without images.
    """
    table = corpus.select_columns(["image_id", "captions"]).with_format("arrow")[:]
    index = CaptionIndex(table)
    hashes = [blake2b(name.encode(), digest_size=8).digest() for name in table["image_id"].to_pylist()]
    drawn = np.empty(len(table), dtype=np.int64)  # row -> its place in the order in which images are drawn
    drawn[sorted(range(len(table)), key=hashes.__getitem__)] = np.arange(len(table))
    rows_of = {language: np.unique(index.rows[index.captions_in(language)]) for language in index.languages}
    part_of = np.zeros(len(table), dtype=np.int8)
    for language, rows in sorted(rows_of.items(), key=lambda item: (len(item[1]), item[0])):
        rows_of[language] = rows = rows[np.argsort(drawn[rows])]
        for part in (_PARTS["validation"], _PARTS["test"]):
            missing = _size(len(rows)) - int((part_of[rows] == part).sum())
            part_of[rows[part_of[rows] == 0][: max(0, missing)]] = part
    part = _PARTS[split]
    chosen = np.flatnonzero(part_of == part)
    if part:  # an image that is here for a rare language is not counted among those of a frequent one
        kept = {tag: {*rows[part_of[rows] == part][: _size(len(rows))].tolist()} for tag, rows in rows_of.items()}
        captions = [
            [each for each in table["captions"][row].as_py() if row in kept[each["language"]]]
            for row in chosen.tolist()
        ]
        filled = [position for position, each in enumerate(captions) if each]
        chosen, captions = chosen[filled], [captions[position] for position in filled]
    if not len(chosen):
        raise CorpusError(f"WIT's split {split} has no image: there are {len(table):,} images in all")
    found = corpus.select(chosen)
    return found.remove_columns("captions").add_column("captions", captions, feature=CAPTIONS) if part else found


def _size(images: int) -> int:
    """The images of a language for validation, and for the test."""
    return next((size for size in _SIZES if 5 * size <= images), -(-images // 5))

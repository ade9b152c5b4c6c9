"""Rules for alt texts, by which noisy texts of the web are left out: those of ALIGN's kind, as Lee et al. (2022, ETCL,
section 3.4) state them.

    too short, too long    fewer than 3 or more than 100 words, or more than 1000 characters
    shared                 texts of more than 10 images, such as "thumbnail for version as of"

Not here are their rules for images (a shorter side above 200 pixels and an aspect ratio of at most 3, which are
img2dataset's `--min_image_size 201 --max_aspect_ratio 3`; at most 100 texts of an image), and that for the language,
which cld3 told. They state no rule for rare words, as ALIGN has one.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np
from datasets import Dataset, IterableDataset
from numpy.typing import NDArray

from ...utils.errors import CorpusError
from ..corpus.captions import Caption
from ..corpus.corpus import AnyDataset, batch_with_captions, with_captions
from .views import undecoded

_BATCH = 1000  # number of rows whose texts are read together
_ROWS = 128  # of a stream, with their images
_MOST = 255  # that a counter holds
_TABLES, _COUNTERS = 4, 1 << 25  # 128 MiB

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TextFilter:
    """Which texts of a caption corpus are kept.

    Args:
        min_words: the smallest number of words, which are what spaces separate; for Chinese or Japanese give 1.
        max_words: the largest number of words.
        max_characters: the largest number of characters.
        max_images: texts of more rows are left out; None keeps them. To count them, the texts are read once more
            beforehand, those of a stream too, in 128 MiB however many there are. Different texts may share counters:
            in a simulation (Zipf's law, one text of seventy in more than ten rows) one in 80,000 of ten million
            texts was left out for that, and one in 170 of a hundred million.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # where a recipe states the rules

    min_words: int = 3
    max_words: int = 100
    max_characters: int = 1000
    max_images: int | None = 10

    def __post_init__(self) -> None:
        if not 1 <= self.min_words <= self.max_words:
            raise CorpusError(f"min_words={self.min_words} and max_words={self.max_words} leave no text")
        if self.max_characters < 1:
            raise CorpusError(f"max_characters must be at least 1, not {self.max_characters}")
        if self.max_images is not None and not 1 <= self.max_images < _MOST:
            raise CorpusError(f"max_images must be from 1 to {_MOST - 1}, or null, not {self.max_images}")

    def __str__(self) -> str:
        """For model cards, such as `texts of 3 to 100 words, 1000 characters at most and 10 images at most`."""
        images = "" if self.max_images is None else f" and {self.max_images} images at most"
        return f"texts of {self.min_words} to {self.max_words} words, {self.max_characters} characters at most{images}"

    def apply(self, corpus: AnyDataset) -> AnyDataset:
        """The corpus without the other texts, and without the rows that have no text left.

        Args:
            corpus: a caption corpus, or a stream of one.

        Raises:
            CorpusError: when no text is left (not checked for a stream).

        Examples:
            >>> corpus = TextFilter(max_images=None).apply(load_captions("photos"))
        """
        counts = None if self.max_images is None else _Counts.of(corpus)
        if isinstance(corpus, IterableDataset):
            encoded = undecoded(corpus.with_format(None))  # images stay as they are
            kept = encoded.map(partial(_of_batch, rules=self, counts=counts), batched=True, batch_size=_ROWS)
            return kept.cast(corpus.features)
        rows = [row for batch in _batches(corpus) for row in self._kept(batch, counts)]
        left = [index for index, row in enumerate(rows) if row]
        if not left:
            raise CorpusError("the filter leaves no text")
        logger.info("the filter of texts leaves %s of %s rows", f"{len(left):,}", f"{len(corpus):,}")
        return with_captions(corpus.select(left), (row for row in rows if row))

    def _kept(self, rows: list[list[Caption]], counts: "_Counts | None") -> list[list[Caption]]:
        kept = [[caption for caption in row if self._fits(caption["text"])] for row in rows]
        if counts is None or self.max_images is None:
            return kept
        texts = list({caption["text"] for row in kept for caption in row})
        shared = {text for text, images in zip(texts, counts.get(texts), strict=True) if images > self.max_images}
        return [[caption for caption in row if caption["text"] not in shared] for row in kept]

    def _fits(self, text: str) -> bool:
        return self.min_words <= len(text.split()) <= self.max_words and len(text) <= self.max_characters


class _Counts:
    """How many rows have a text, at least (a count-min sketch: Cormode & Muthukrishnan 2005)."""

    def __init__(self) -> None:
        self.tables = np.zeros((_TABLES, _COUNTERS), dtype=np.uint8)

    @classmethod
    def of(cls, corpus: Dataset | IterableDataset) -> "_Counts":
        counts = cls()
        for batch in _batches(corpus):
            counts.add([text for row in batch for text in {caption["text"] for caption in row}])
        return counts

    def add(self, texts: list[str]) -> None:
        for table, places in zip(self.tables, _places(texts), strict=True):
            found, times = np.unique(places, return_counts=True)
            table[found] = np.minimum(table[found] + times, _MOST)

    def get(self, texts: list[str]) -> NDArray[np.uint8]:
        """The number of rows of each text; `_MOST` stands for more."""
        counts = [table[places] for table, places in zip(self.tables, _places(texts), strict=True)]
        return np.min(counts, axis=0)


def _places(texts: list[str]) -> NDArray[np.int64]:
    """A counter of each table for each text, of shape (tables, texts)."""
    digests = b"".join(blake2b(text.encode(), digest_size=4 * _TABLES).digest() for text in texts)
    return np.frombuffer(digests, dtype="<u4").reshape(-1, _TABLES).T.astype(np.int64) % _COUNTERS


def _batches(corpus: Dataset | IterableDataset) -> Iterator[list[list[Caption]]]:
    for batch in corpus.select_columns("captions").with_format(None).iter(_BATCH):
        yield batch["captions"]


def _of_batch(batch: dict[str, list[Any]], *, rules: TextFilter, counts: _Counts | None) -> dict[str, list[Any]]:
    """A batch of a stream, without the rows that have no text left."""
    return batch_with_captions(batch, rules._kept(batch["captions"], counts))

"""Rules that remove noisy alt texts from web data, similar to ALIGN's, as stated by Lee et al. (2022, ETCL, section
3.4):

    too short, too long    fewer than 3 or more than 100 words, or more than 1000 characters
    shared                 texts of more than 10 images, such as "thumbnail for version as of"

This module does not include their rules for images (a shorter side above 200 pixels and an aspect ratio of at most 3:
img2dataset's `--min_image_size 201 --max_aspect_ratio 3`; at most 100 texts per image) or for the language, which they
detect with cld3. Unlike ALIGN, they state no rule for rare words.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, ClassVar

from datasets import Dataset, IterableDataset

from ...utils.errors import CorpusError
from ..corpus.captions import Caption
from ..corpus.corpus import AnyDataset, batch_with_captions, with_captions
from .views import undecoded

_BATCH_ROWS = 1000  # whose texts are read together
_STREAM_ROWS = 128  # rows of a stream, with their images

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TextFilter:
    """Rules that decide which texts of a caption corpus are kept.

    Args:
        min_words: minimum number of words, separated by spaces; use 1 for Chinese or Japanese.
        max_words: maximum number of words.
        max_characters: maximum number of characters.
        max_images: texts of more rows are left out; None keeps them. Counting reads the texts an extra time
            beforehand, even for a stream, and takes about 100 bytes of memory for each distinct text.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # for recipes that state the rules

    min_words: int = 3
    max_words: int = 100
    max_characters: int = 1000
    max_images: int | None = 10

    def __post_init__(self) -> None:
        if not 1 <= self.min_words <= self.max_words:
            raise CorpusError(f"min_words={self.min_words} and max_words={self.max_words} leave no text")
        if self.max_characters < 1 or (self.max_images is not None and self.max_images < 1):
            raise CorpusError("max_characters and max_images must be at least 1")

    def __str__(self) -> str:
        """For model cards, such as `texts of 3 to 100 words, 1000 characters at most and 10 images at most`."""
        images = "" if self.max_images is None else f" and {self.max_images} images at most"
        return f"texts of {self.min_words} to {self.max_words} words, {self.max_characters} characters at most{images}"

    def apply(self, corpus: AnyDataset) -> AnyDataset:
        """Returns the corpus without the rejected texts and without rows that have no text left.

        Args:
            corpus: a caption corpus, or a stream of one.

        Raises:
            CorpusError: if no text is left (not checked for a stream).

        Examples:
            >>> corpus = TextFilter(max_images=None).apply(load_captions("photos"))
        """
        shared: Collection[bytes] = ()
        if self.max_images is not None:
            fitting = ({_digest(each["text"]) for each in row if self._fits(each["text"])} for row in _rows(corpus))
            counts = Counter(digest for row in fitting for digest in row)
            shared = frozenset(digest for digest, images in counts.items() if images > self.max_images)
        if isinstance(corpus, IterableDataset):
            encoded = undecoded(corpus.with_format(None))  # images are not decoded
            kept = encoded.map(partial(_of_batch, rules=self, shared=shared), batched=True, batch_size=_STREAM_ROWS)
            return kept.cast(corpus.features)
        rows = [self._kept(row, shared) for row in _rows(corpus)]
        left = [index for index, row in enumerate(rows) if row]
        if not left:
            raise CorpusError("the filter leaves no text")
        logger.info("the text filter keeps %s of %s rows", f"{len(left):,}", f"{len(corpus):,}")
        return with_captions(corpus.select(left), (row for row in rows if row))

    def _kept(self, row: list[Caption], shared: Collection[bytes]) -> list[Caption]:
        return [each for each in row if self._fits(each["text"]) and _digest(each["text"]) not in shared]

    def _fits(self, text: str) -> bool:
        return self.min_words <= len(text.split()) <= self.max_words and len(text) <= self.max_characters


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=8).digest()


def _rows(corpus: Dataset | IterableDataset) -> Iterator[list[Caption]]:
    for batch in corpus.select_columns("captions").with_format(None).iter(_BATCH_ROWS):
        yield from batch["captions"]


def _of_batch(batch: dict[str, list[Any]], *, rules: TextFilter, shared: Collection[bytes]) -> dict[str, list[Any]]:
    """Filters a batch of a stream, and leaves out rows that have no text left."""
    return batch_with_captions(batch, [rules._kept(row, shared) for row in batch["captions"]])

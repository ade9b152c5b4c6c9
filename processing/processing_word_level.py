"""What the processors of SMALR and LIWE share, which read words and not tokens."""

from typing import Any, NamedTuple

from .processing_per_language import PerLanguageProcessor
from .processing_text_image import TextLayout
from .text_inputs import note_cut_texts


class SpecialIds(NamedTuple):
    """Ids that transformers' `Trainer` looks for on a tokenizer."""

    pad_token_id: int = 0
    bos_token_id: int | None = None
    eos_token_id: int | None = None


class WordLevelProcessor(PerLanguageProcessor):
    """Base class of the processors that read words.

    For a model that takes precomputed image features, `images` is left out of the call.

    Args:
        image_processor: such as a `MuralImageProcessor`.
        max_text_length: number of words that are read of a text.
    """

    def __init__(self, image_processor: Any, max_text_length: int) -> None:
        super().__init__(image_processor)
        self.max_text_length = max_text_length

    @property
    def tokenizer(self) -> SpecialIds:
        """The special ids, which transformers' `Trainer` looks for under this name."""
        return SpecialIds()

    @staticmethod
    def cut(texts: list[str], rows: list[list[Any]], layout: TextLayout) -> list[list[Any]]:
        """Cuts the words of texts at the largest length, and notes which texts were cut."""
        kept = [row[: layout.end] for row in rows]
        shortened = [text for text, row, rest in zip(texts, rows, kept, strict=True) if len(rest) < len(row)]
        note_cut_texts(shortened, f"{layout.max_length} words")
        return kept

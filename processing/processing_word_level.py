"""What the processors of word-level methods share."""

from typing import Any, NamedTuple

from .processing_by_language import ByLanguageProcessor


class SpecialIds(NamedTuple):
    """Those of a method that has no tokenizer."""

    pad_token_id: int = 0
    bos_token_id: int | None = None
    eos_token_id: int | None = None


class WordLevelProcessor(ByLanguageProcessor):
    """Where a model takes precomputed picture features, `images=` is left out.

    Args:
        image_processor: such as a `MuralImageProcessor`.
        max_text_length: words that are read of a text.
    """

    def __init__(self, image_processor: Any, max_text_length: int) -> None:
        super().__init__(image_processor)
        self.max_text_length = max_text_length

    @property
    def tokenizer(self) -> SpecialIds:
        """The special ids, which transformers' `Trainer` looks for here."""
        return SpecialIds()

"""What the processors of word-level methods share: texts with their languages and pictures, in one call."""

from typing import Any, NamedTuple

from transformers import BatchFeature, ProcessorMixin

from ..configuration.hub_code import HubCodeMixin
from .processor_inputs import check_inputs, texts_with_languages


class SpecialIds(NamedTuple):
    """Those of a method that has no tokenizer."""

    pad_token_id: int = 0
    bos_token_id: int | None = None
    eos_token_id: int | None = None


class WordLevelProcessor(HubCodeMixin, ProcessorMixin):
    """Pictures and texts -> a model's inputs; a subclass says what its model reads of texts (`_encode`).

    Where a model takes precomputed picture features, `images=` is left out.

    Args:
        image_processor: such as a `MuralImageProcessor`.
        max_text_length: words that are read of a text.
    """

    def __init__(self, image_processor: Any, max_text_length: int) -> None:
        super().__init__(image_processor)
        self.max_text_length = max_text_length

    def __call__(
        self,
        images: Any = None,
        text: str | list[str] | None = None,
        language: str | list[str] | None = None,
        return_tensors: str | None = None,
        max_length: int | None = None,
        **kwargs: Any,
    ) -> BatchFeature:
        """
        Args:
            images: a picture or a list of them (Pillow, arrays, tensors, paths).
            text: a text or a list of them.
            language: BCP-47 tag of all texts, or one for each.
            return_tensors: `"pt"` or `"np"`; lists by default.
            max_length: cut texts at that many words; by default at `max_text_length`.
            kwargs: passed to the image processor.

        Raises:
            LanguageTagError: for an unknown language tag.
            UnknownLanguageError: for a language that the processor has not learned.
            ImportError: for a text whose language needs a segmenter that is not installed (`word_tokenizers`).
            ValueError: for texts without a language, not as many languages as texts, an empty list, or nothing at all.
        """
        check_inputs(images, text, language)
        inputs: dict[str, Any] = {}
        if text is not None and language is not None:
            inputs |= self._encode(*texts_with_languages(text, language), max_length or self.max_text_length)
        if images is not None:
            inputs |= self.image_processor(images, return_tensors=return_tensors, **kwargs)
        return BatchFeature(inputs, tensor_type=return_tensors)

    def _encode(self, texts: list[str], languages: list[str], max_length: int) -> dict[str, list[Any]]:
        """Texts and the canonical tag of each -> the model's inputs, padded."""
        raise NotImplementedError

    @property
    def tokenizer(self) -> SpecialIds:
        """The special ids, which transformers' `Trainer` looks for here."""
        return SpecialIds()

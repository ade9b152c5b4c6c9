"""What processors share whose methods read each language in its own way, and refuse a text without one."""

from typing import Any

from transformers import BatchFeature, ProcessorMixin

from ..configuration.hub_code import HubCodeMixin
from ..configuration.languages import language_for_each


class ByLanguageProcessor(HubCodeMixin, ProcessorMixin):
    """Pictures and texts -> `pixel_values`, `input_ids`, `attention_mask`, `language_ids`. Subclasses define
    `encode_texts` and `max_text_length`."""

    max_text_length: int

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
            max_length: cut texts at that many tokens or words; by default at `max_text_length`.
            kwargs: passed to the image processor.

        Raises:
            LanguageTagError: for an unknown language tag.
            UnknownLanguageError: for a language that the model has not learned.
            ImportError: for a text whose language needs a segmenter that is not installed (`word_tokenizers`).
            ValueError: for nothing at all, an empty list, what is no text, texts without a language or the reverse, or
                not as many languages as texts.
        """
        _check(images, text, language)
        inputs: dict[str, Any] = {}
        if text is not None and language is not None:
            texts = [text] if isinstance(text, str) else list(text)
            for entry in texts:
                if not isinstance(entry, str):
                    raise ValueError(f"text= has {entry!r}, which is no text")
            languages = language_for_each(language, len(texts))
            inputs |= self.encode_texts(texts, languages, max_length or self.max_text_length)
        if images is not None:
            inputs |= self.image_processor(images, return_tensors=return_tensors, **kwargs)
        return BatchFeature(inputs, tensor_type=return_tensors)

    def encode_texts(self, texts: list[str], languages: list[str], max_length: int) -> dict[str, list[Any]]:
        """The model's inputs for texts and their canonical tags, as lists."""
        raise NotImplementedError

    @property
    def model_input_names(self) -> list[str]:
        return ["pixel_values", "input_ids", "attention_mask", "language_ids"]


def _check(images: Any, text: Any, language: Any) -> None:
    if images is None and text is None:
        raise ValueError("give images=, text=, or both")
    for name, given in (("images", images), ("text", text)):
        if isinstance(given, list) and not given:
            raise ValueError(f"{name} is an empty list")
    if text is None and language is not None:
        raise ValueError("language= was given without text=")
    if text is not None and language is None:
        raise ValueError("text= was given without language=: each language has its own way of reading")

"""What processors share whose methods read each language in its own way, and refuse a text without one."""

from typing import Any

from transformers import BatchFeature, ProcessorMixin

from ..configuration.errors import BabelensError
from ..configuration.hub_code import HubCodeMixin
from ..configuration.languages import MissingLanguageError, language_for_each


class TokenizerError(BabelensError, ValueError):
    """A tokenizer that cannot serve as the vocabulary it is to be."""


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
            MissingLanguageError: for texts without a language.
            ValueError: for nothing at all, an empty list, what is no text, a language without texts, or not as many
                languages as texts.
        """
        _check(images, text, language)
        inputs: dict[str, Any] = {}
        if text is not None:
            inputs |= self.encode_texts(*texts_and_languages(text, language), max_length or self.max_text_length)
        if images is not None:
            inputs |= self.image_processor(images, return_tensors=return_tensors, **kwargs)
        return BatchFeature(inputs, tensor_type=return_tensors)

    def encode_texts(self, texts: list[str], languages: list[str], max_length: int) -> dict[str, list[Any]]:
        """The model's inputs for texts and their canonical tags, as lists."""
        raise NotImplementedError

    @property
    def model_input_names(self) -> list[str]:
        return ["pixel_values", "input_ids", "attention_mask", "language_ids"]


def texts_and_languages(
    text: str | list[str], language: str | list[str] | None, names: tuple[str, str] = ("text", "language")
) -> tuple[list[str], list[str]]:
    """Texts, and the canonical tag of each, from the two arguments of these names.

    Raises:
        LanguageTagError: for an unknown language tag.
        MissingLanguageError: without any language.
        ValueError: for no texts, what is no text, or not as many languages as texts.
    """
    texts = [text] if isinstance(text, str) else list(text)
    if not texts:
        raise ValueError(f"{names[0]} is an empty list")
    for entry in texts:
        if not isinstance(entry, str):
            raise ValueError(f"{names[0]}= has {entry!r}, which is no text")
    if language is None:
        raise MissingLanguageError(
            f"{names[0]}= was given without {names[1]}=: each language has its own way of reading"
        )
    return texts, language_for_each(language, len(texts))


def _check(images: Any, text: Any, language: Any) -> None:
    if images is None and text is None:
        raise ValueError("give images=, text=, or both")
    if isinstance(images, list) and not images:
        raise ValueError("images is an empty list")
    if text is None and language is not None:
        raise ValueError("language= was given without text=")

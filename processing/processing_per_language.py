"""What processors share whose methods read each language in its own way, and refuse a text without one."""

from typing import Any, ClassVar

from transformers import BatchFeature

from .processing_text_image import TextImageProcessor, as_batch, texts_and_languages
from .processor_settings import TextLayout


class PerLanguageProcessor(TextImageProcessor):
    """Images and texts -> `pixel_values`, `input_ids`, `attention_mask`, `language_ids`. Subclasses define
    `encode_texts` and `max_text_length`."""

    max_text_length: int
    text_names: ClassVar[frozenset[str]] = frozenset(
        ("padding", "truncation", "max_length", "pad_to_multiple_of", "return_attention_mask")
    )

    @property
    def text_kwargs(self) -> dict[str, Any]:
        """What holds of texts unless a call says otherwise."""
        return {"padding": True, "truncation": True, "max_length": self.max_text_length}

    def __call__(
        self,
        images: Any = None,
        text: str | list[str] | None = None,
        language: str | list[str] | None = None,
        **kwargs: Any,
    ) -> BatchFeature:
        """
        Args:
            images: an image or a list of them (Pillow, arrays and tensors of uint8, paths); see `as_images`.
            text: a text or a list of them.
            language: BCP-47 tag of all texts, or one for each; also in `text_kwargs`.
            kwargs: as transformers' processors take them, by themselves or in `text_kwargs`, `images_kwargs` and
                `common_kwargs`: `return_tensors="pt"` or `"np"` (lists by default), `padding` (by default to the
                longest), `truncation` (True by default), `max_length` (tokens or words; by default `max_text_length`),
                `pad_to_multiple_of`, `return_attention_mask`, and what the image processor takes.

        Raises:
            LanguageTagError: for an unknown language tag.
            UnknownLanguageError: for a language that the model has not learned.
            ImportError: for a text whose language needs a segmenter that is not installed (`word_tokenizers`).
            MissingLanguageError: for texts without a language.
            InputError: for not as many languages as texts.
            InputError: for no texts, what is no text, or a text that is no Unicode.
            ImageError: for what is no image, or one that cannot be read.
            InputError: for nothing at all, no images, a language without texts, or a keyword's wrong value.
            ArgumentError: for a keyword that is not known.
        """
        language, text_settings, image_settings = self.read_settings(language, kwargs)
        self.check_given(images, text, language)
        inputs: dict[str, Any] = {}
        if text is not None:
            inputs |= self.encode_texts(*texts_and_languages(text, language), TextLayout.of(text_settings))
        if images is not None:
            inputs |= self.read_images(images, image_settings)
        return as_batch(inputs, text_settings.get("return_tensors"))

    def encode_texts(self, texts: list[str], languages: list[str], layout: TextLayout) -> dict[str, list[Any]]:
        """The model's inputs for texts and their canonical tags, as lists."""
        raise NotImplementedError

    @property
    def model_input_names(self) -> list[str]:
        return ["pixel_values", "input_ids", "attention_mask", "language_ids"]

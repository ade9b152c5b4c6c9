"""What the processors of methods share that read each language in its own way, and refuse a text without a
language."""

from typing import Any, ClassVar, NamedTuple

from transformers import BatchFeature

from .processing_text_image import TextImageProcessor, TextLayout, as_batch, texts_and_languages
from .text_inputs import UNDETERMINED, note_cut_texts


class PerLanguageProcessor(TextImageProcessor):
    """Turns images and texts into `pixel_values`, `input_ids`, `attention_mask` and `language_ids`.

    Subclasses define `encode_texts` and `max_text_length`.
    """

    max_text_length: int
    text_names: ClassVar[frozenset[str]] = frozenset(
        ("padding", "truncation", "max_length", "pad_to_multiple_of", "return_attention_mask")
    )

    @property
    def text_kwargs(self) -> dict[str, Any]:
        """Settings for texts that apply unless a call gives others."""
        return {"padding": True, "truncation": True, "max_length": self.max_text_length}

    def __call__(
        self,
        images: Any = None,
        text: str | list[str] | None = None,
        language: str | list[str] | None = None,
        **kwargs: Any,
    ) -> BatchFeature:
        """Prepares images, texts or both for a model.

        Args:
            images: an image or a list of them (Pillow, arrays and tensors of uint8, paths); see `as_images`.
            text: a text or a list of texts.
            language: BCP-47 tag of all texts, or a list with one for each text; also in `text_kwargs`.
            kwargs: keyword arguments of transformers' processors, directly or in `text_kwargs`, `images_kwargs` and
                `common_kwargs`: `return_tensors="pt"` or `"np"` (lists by default), `padding` (by default to the
                longest), `truncation` (by default True), `max_length` (tokens or words; by default `max_text_length`),
                `pad_to_multiple_of`, `return_attention_mask`, and those of the image processor.

        Returns:
            The model's inputs: `input_ids`, `attention_mask` and `language_ids` of texts, `pixel_values` of images.

        Raises:
            ArgumentError: for an unknown keyword.
            ImageError: if an item is not an image, or cannot be read.
            ImportError: if the language of a text needs a segmenter that is not installed (`word_tokenizers`).
            InputError: if there is nothing to prepare, a list is empty, an item is not a Unicode text, there are not
                as many languages as texts, there are languages without texts, or a keyword has a wrong value.
            LanguageTagError: if a tag names no language.
            MissingLanguageError: if texts are given without a language, and it matters (`needs_language`).
            UnknownLanguageError: if the model has not learned a language.
        """
        language, text_settings, image_settings = self.read_settings(language, kwargs)
        self.check_given(images, text, language)
        inputs: dict[str, Any] = {}
        if text is not None:
            language = UNDETERMINED if language is None and not self.needs_language else language
            inputs |= self.encode_texts(*texts_and_languages(text, language), TextLayout.of(text_settings))
        if images is not None:
            inputs |= self.read_images(images, image_settings)
        return as_batch(inputs, text_settings.get("return_tensors"))

    def encode_texts(self, texts: list[str], languages: list[str], layout: TextLayout) -> dict[str, list[Any]]:
        """Returns the model's inputs for texts, as lists.

        Args:
            texts: the texts.
            languages: the canonical tag of each text.
            layout: how they are padded and cut.
        """
        raise NotImplementedError

    @property
    def model_input_names(self) -> list[str]:
        """Names of the model's inputs."""
        return ["pixel_values", "input_ids", "attention_mask", "language_ids"]


# ---- Words ----
# What the processors of SMALR and LIWE share, which read words and not tokens.


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

"""Processor of a `RidgeModel`: texts as characters, and as the tokens of the model that reads them."""

import unicodedata
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import BatchFeature, PreTrainedConfig, ProcessorMixin

from ..configuration.languages import language_id, normalize_language, normalize_languages
from .processing_mla import MlaProcessor
from .processing_mla_student import NativeTextProcessor
from .processing_per_language import PerLanguageProcessor
from .processing_text_image import TextLayout
from .text_inputs import UNDETERMINED, note_cut_texts, overlong

MOST_CHARACTERS = 512


def as_characters(text: str) -> list[int]:
    """Returns the code points of a text in lower case and in Unicode's compatible form, with a space at both ends and
    between words."""
    words = unicodedata.normalize("NFKC", text).lower().split()
    return [ord(character) for character in f" {' '.join(words)} "]


def characters_of(texts: list[str]) -> Tensor:
    """Returns the code points of texts [N, C] as `as_characters` has them, 0 at padding."""
    rows = [torch.tensor(as_characters(text)[:MOST_CHARACTERS]) for text in texts]
    return pad_sequence(rows, batch_first=True)


class RidgeProcessor(PerLanguageProcessor):
    """Prepares images and texts: `pixel_values`, `input_ids`, `attention_mask`, `language_ids`, `character_ids`.

    Args:
        image_processor, tokenizer: those of the native model.
        encoder_tokenizer: that of the text encoder; None for a model without one.
        native_language, languages: as in `RidgeConfig`.
        max_text_length: number of tokens at which the text encoder's texts are cut.
        max_native_length, pad_native: how the native model reads native texts: `max_text_length` and
            `pad_to_max_length` of `MlaProcessor`.
        text_prompt: what stands before every text that the text encoder reads.
        any_language: whether a text in a language that is not among these is read as one without a language.
        has_text_encoder: whether a text encoder reads texts beside their characters; by default, whether there is an
            `encoder_tokenizer`. A saved processor has one in any case.

    Examples:
        >>> processor = RidgeProcessor.for_native(clip.config, clip_processor, languages=["mi"])
        >>> inputs = processor(text=["a red car", "he motokā whero"], language=["en", "mi"], return_tensors="pt")
    """

    auto_classes = ("AutoProcessor",)
    reads_unstated: ClassVar[bool] = True

    def __init__(
        self,
        image_processor: Any,
        tokenizer: Any,
        encoder_tokenizer: Any = None,
        native_language: str = "en",
        languages: list[str] | tuple[str, ...] = (),
        max_text_length: int = 128,
        max_native_length: int = 77,
        pad_native: bool = False,
        text_prompt: str = "",
        any_language: bool = False,
        has_text_encoder: bool | None = None,
    ) -> None:
        super().__init__(image_processor, tokenizer, encoder_tokenizer or tokenizer)
        self.native_language = normalize_language(native_language)
        self.languages = normalize_languages(list(languages))
        self.max_text_length, self.max_native_length, self.pad_native = max_text_length, max_native_length, pad_native
        self.text_prompt, self.any_language = text_prompt, any_language
        self.has_text_encoder = encoder_tokenizer is not None if has_text_encoder is None else has_text_encoder

    @classmethod
    def for_native(
        cls,
        config: PreTrainedConfig,
        native_processor: ProcessorMixin,
        encoder_tokenizer: Any = None,
        native_language: str = "en",
        **options: Any,
    ) -> Self:
        """Makes the processor of a native model and, if there is one, of a text encoder.

        Args:
            config: configuration of the native model.
            native_processor: its processor.
            encoder_tokenizer: the tokenizer of the text encoder.
            native_language: BCP-47 tag of the language that the native model reads.
            options: `languages`, `text_prompt` and `max_text_length`.
        """
        other = encoder_tokenizer or native_processor.tokenizer
        native = NativeTextProcessor.for_native(config, native_processor, other, native_language=native_language)
        lengths: dict[str, Any] = {"max_native_length": native.max_text_length, "pad_native": native.pad_to_max_length}
        return cls(
            native.image_processor,
            native.tokenizer,
            encoder_tokenizer,
            native_language=native_language,
            **lengths,
            **options,
        )

    @property
    def native(self) -> MlaProcessor:
        """A processor that reads native texts, and images, for the native model alone."""
        return NativeTextProcessor(
            self.image_processor,
            self.tokenizer,
            self.encoder_tokenizer,
            native_language=self.native_language,
            max_text_length=self.max_native_length,
            pad_to_max_length=self.pad_native,
        )

    @property
    def known_languages(self) -> list[str]:
        """The languages in the order of their ids; the second is `und`, of texts whose language is not stated."""
        return [self.native_language, UNDETERMINED, *self.languages]

    @property
    def model_input_names(self) -> list[str]:
        """Names of the model's inputs."""
        return [*super().model_input_names, "character_ids"]

    def __call__(
        self,
        images: Any = None,
        text: str | list[str] | None = None,
        language: str | list[str] | None = None,
        **kwargs: Any,
    ) -> BatchFeature:
        """As `PerLanguageProcessor`; texts without a language are read by the map that all languages share."""
        grouped = kwargs.get("text_kwargs")
        in_group = isinstance(grouped, Mapping) and grouped.get("language") is not None
        if text is not None and language is None and not in_group:
            language = UNDETERMINED
        return super().__call__(images, text, language, **kwargs)

    def encode_texts(self, texts: list[str], languages: list[str], layout: TextLayout) -> dict[str, list[Any]]:
        """As in `PerLanguageProcessor`.

        Raises:
            UnknownLanguageError: if the model has not learned a language.
        """
        known = self.known_languages
        if self.any_language:
            languages = [tag if tag in known else UNDETERMINED for tag in languages]
        ids = [language_id(tag, known) for tag in languages]
        tokens: list[list[int]] = [[]] * len(texts)
        native = [row for row, index in enumerate(ids) if index == 0]
        if native:
            chosen: dict[str, Any] = {"truncation": layout.cut, "padding": "max_length" if self.pad_native else False}
            if layout.max_length != self.max_text_length:
                chosen["max_length"] = min(layout.max_length, self.max_native_length)
            read = self.native(text=[texts[row] for row in native], language=self.native_language, **chosen)
            for row, given in zip(native, read["input_ids"], strict=True):
                tokens[row] = given
        if other := [row for row, index in enumerate(ids) if index]:
            mine = [texts[row] for row in other]
            prompted = [self.text_prompt + text for text in mine]
            read = self.encoder_tokenizer(prompted, truncation=layout.cut, max_length=layout.end, verbose=False)
            if self.has_text_encoder:
                note_cut_texts(overlong(mine, read), f"{layout.max_length} tokens")
            else:  # their characters are all that the model reads
                cut = [text for text in mine if len(as_characters(text)) > MOST_CHARACTERS]
                note_cut_texts(cut, f"{MOST_CHARACTERS} characters")
            for row, given in zip(other, read["input_ids"], strict=True):
                tokens[row] = given
        padding_ids = [(self.encoder_tokenizer if index else self.tokenizer).pad_token_id or 0 for index in ids]
        return {
            "input_ids": layout.padded(tokens, padding_ids),
            **layout.mask(tokens),
            "language_ids": ids,
            "character_ids": self.characters(texts).tolist(),
        }

    def characters(self, texts: list[str]) -> Tensor:
        """Returns the code points of texts [N, C], 0 at padding."""
        return characters_of(texts)


__all__ = ["RidgeProcessor"]

"""Processor of MLA's baselines: the student's vocabulary reads every language, next to the native model's vocabulary
(Zhang et al. 2022, tables 4 and 7)."""

from dataclasses import replace
from typing import Any, Literal, Self

from transformers import PreTrainedConfig, ProcessorMixin

from ..utils.language_matching import is_same_language
from ..utils.languages import language_for_each, normalize_language
from .processing_dual_encoder import DualEncoderProcessor
from .processing_mla import native_length, native_reader, with_mask
from .processing_per_language import PerLanguageProcessor, TextLayout, read_in_two, texts_and_languages
from .text_inputs import UNDETERMINED, as_texts, counting_cut_texts, note_cut_texts
from .text_normalization import checked_normalization, same_letters


class MlaStudentProcessor(DualEncoderProcessor):
    """Prepares images and texts for an `MlaStudentModel`; its `native` prepares them for the native model.

    Args:
        image_processor: the native model's.
        tokenizer: the student's, for texts in every language that it reads.
        native_tokenizer: the native model's.
        native_language, max_native_length, pad_native: how the native model reads native texts: `native_language`,
            `max_text_length` and `pad_to_max_length` of `MlaProcessor`.
        text_prompt, native_texts: as in `MlaStudentConfig`. With `native_texts="native"`, texts need their language,
            and `language_ids` is 0 in rows that the native model reads and 1 elsewhere.

    Examples:
        >>> processor = MlaStudentProcessor.for_native(clip.config, clip_processor, m_bert_tokenizer)
        >>> inputs = processor(text=["a red car", "ein rotes Auto"], language=["en", "de"], return_tensors="pt")
    """

    auto_classes = ("AutoProcessor",)

    def __init__(
        self,
        image_processor: Any,
        tokenizer: Any,
        native_tokenizer: Any,
        native_language: str = "en",
        max_native_length: int = 77,
        pad_native: bool = False,
        text_prompt: str = "",
        native_texts: Literal["student", "native"] = "student",
        normalization: int = 0,
    ) -> None:
        super().__init__(image_processor, tokenizer, text_prompt, native_tokenizer=native_tokenizer)
        self.native_language = normalize_language(native_language)
        self.max_native_length, self.pad_native = max_native_length, pad_native
        self.native_texts = native_texts
        self.normalization = checked_normalization(normalization)

    @classmethod
    def for_native(
        cls,
        config: PreTrainedConfig,
        native_processor: ProcessorMixin,
        tokenizer: Any,
        native_language: str = "en",
        **options: Any,
    ) -> Self:
        """Makes the processor of a student from a native model and its processor.

        Args:
            tokenizer: the student's tokenizer.
            options: `text_prompt`, `native_texts` and `normalization`.
        """
        own = native_processor.image_processor, tokenizer, with_mask(native_processor.tokenizer)
        return cls(*own, native_language, *native_length(config, native_processor), **options)

    @property
    def one_tokenizer(self) -> bool:  # type: ignore[override]
        """Whether the student's tokenizer reads texts in every language."""
        return self.native_texts == "student"

    @property
    def text_names(self) -> frozenset[str]:  # type: ignore[override]
        """Keywords for texts; for rows that two tokenizers read, the keywords that both share."""
        return super().text_names if self.one_tokenizer else PerLanguageProcessor.text_names

    @property
    def native(self) -> DualEncoderProcessor:
        """Reads native texts and images for the native model."""
        return native_reader(self.image_processor, self.native_tokenizer, self.max_native_length, self.pad_native)

    @property
    def model_input_names(self) -> list[str]:
        names = ["pixel_values", "input_ids", "attention_mask"]
        return names if self.one_tokenizer else [*names, "language_ids"]

    def _encoded(self, text: Any, language: Any, settings: dict[str, Any]) -> Any:
        if self.one_tokenizer:
            texts = as_texts(text)
            languages = [UNDETERMINED] * len(texts) if language is None else language_for_each(language, len(texts))
            return self._read(texts, languages, settings, is_one=isinstance(text, str))
        texts, languages = texts_and_languages(text, language)
        native = [is_same_language(tag, self.native_language) for tag in languages]

        def read(rows: list[int], is_native: bool) -> list[list[int]]:
            some = [texts[row] for row in rows]
            if is_native:
                return self._native_rows(some, settings)
            chosen = {name: settings[name] for name in ("truncation", "max_length")}
            read = self._read(some, [languages[row] for row in rows], chosen | {"padding": False})
            return read["input_ids"]

        rows = read_in_two(native, read)
        padding = [(self.native_tokenizer if each else self.tokenizer).pad_token_id for each in native]
        layout = TextLayout.of(settings)
        layout = replace(layout, max_length=max(layout.max_length, *map(len, rows)))
        inputs = {"input_ids": layout.padded(rows, padding), "language_ids": [0 if each else 1 for each in native]}
        return inputs | layout.mask(rows)

    def _read(self, texts: list[str], languages: list[str], settings: dict[str, Any], *, is_one: bool = False) -> Any:
        spelled = texts
        if self.normalization:
            spelled = [same_letters(text, tag) for text, tag in zip(texts, languages, strict=True)]
        with counting_cut_texts() as cut:
            encoded = super()._encoded(spelled[0] if is_one else spelled, None, settings)
        note_cut_texts([text for text, read in zip(texts, spelled, strict=True) if read in cut.texts], cut.limit)
        return encoded

    def _native_rows(self, texts: list[str], settings: dict[str, Any]) -> list[list[int]]:
        # Native texts are cut at the native model's own length, unless the call gives another.
        chosen = {"truncation": settings["truncation"], "padding": "max_length" if self.pad_native else False}
        if settings["max_length"] != self.text_kwargs["max_length"]:
            chosen["max_length"] = min(settings["max_length"], self.max_native_length)
        return self.native(text=texts, **chosen)["input_ids"]


__all__ = ["MlaStudentProcessor"]

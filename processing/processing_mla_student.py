"""Processor of MLA's baselines: every language is read with the student's vocabulary, beside the native model's
(Zhang et al. 2022, tables 4 and 7)."""

from typing import Any, Self

from transformers import PreTrainedConfig, ProcessorMixin

from ..configuration.languages import normalize_language
from .processing_dual_encoder import DualEncoderProcessor
from .processing_mla import MlaProcessor


class MlaStudentProcessor(DualEncoderProcessor):
    """Prepares images and texts for an `MlaStudentModel`; its `native` prepares those of the native model.

    Args:
        image_processor: that of the native model.
        tokenizer: the student's, for texts in every language.
        native_tokenizer: that of the native model.
        native_language, max_native_length, pad_native: how the native model reads native texts: `native_language`,
            `max_text_length` and `pad_to_max_length` of `MlaProcessor`.

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
    ) -> None:
        super().__init__(image_processor, tokenizer, native_tokenizer=native_tokenizer)
        self.native_language = normalize_language(native_language)
        self.max_native_length, self.pad_native = max_native_length, pad_native

    @classmethod
    def for_native(
        cls, config: PreTrainedConfig, native_processor: ProcessorMixin, tokenizer: Any, native_language: str = "en"
    ) -> Self:
        """Makes the processor of a student beside a native model.

        Args:
            config: configuration of the native model.
            native_processor: its processor.
            tokenizer: the student's tokenizer.
            native_language: BCP-47 tag of the language that the native model reads.
        """
        native = MlaProcessor.for_native(config, native_processor, tokenizer, native_language=native_language)
        own = (native.image_processor, tokenizer, native.tokenizer)
        return cls(*own, native_language, native.max_text_length, native.pad_to_max_length)

    @property
    def native(self) -> MlaProcessor:
        """A processor that reads native texts, and images, for the native model alone."""
        return MlaProcessor(
            self.image_processor,
            self.native_tokenizer,
            self.tokenizer,
            native_language=self.native_language,
            max_text_length=self.max_native_length,
            pad_to_max_length=self.pad_native,
        )


__all__ = ["MlaStudentProcessor"]

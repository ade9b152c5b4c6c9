"""Processor of MLA's baselines: every language through the student's vocabulary, and the native model's beside it
(Zhang et al. 2022, tables 4 and 7)."""

from typing import Any, Self

from transformers import PreTrainedConfig, ProcessorMixin

from ..configuration.languages import normalize_language
from .processing_dual_encoder import DualEncoderProcessor
from .processing_mla import MlaProcessor


class MlaStudentProcessor(DualEncoderProcessor):
    """What the student reads; `native` is the processor of what its teacher reads.

    Args:
        image_processor, native_tokenizer: the native model's.
        tokenizer: the student's, for texts in every language.
        native_language, max_native_length, pad_native: of native texts as the native model reads them, as in
            `MlaProcessor`.
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
        """The processor beside a native model with this configuration and processor."""
        native = MlaProcessor.for_native(config, native_processor, tokenizer, native_language=native_language)
        own = (native.image_processor, tokenizer, native.tokenizer)
        return cls(*own, native_language, native.max_text_length, native.pad_to_max_length)

    @property
    def native(self) -> MlaProcessor:
        """Reads native texts, and images, for the native model alone."""
        return MlaProcessor(
            self.image_processor,
            self.native_tokenizer,
            self.tokenizer,
            native_language=self.native_language,
            max_text_length=self.max_native_length,
            pad_to_max_length=self.pad_native,
        )


__all__ = ["MlaStudentProcessor"]

"""MURAL's and ETCL's processors from a `VisionTextDualEncoderProcessor` of transformers, and back."""

import copy
from pathlib import Path
from typing import Any, Self

from transformers import AutoProcessor, PreTrainedConfig, ProcessorMixin, VisionTextDualEncoderProcessor

from ..configuration.errors import ModelKindError
from ..configuration.pretrained import load_processor
from .processing_dual_encoder import check_image_size, longest_text


class VisionTextProcessorConversion:
    """Part of a processor: its conversion from and to transformers' class for a vision backbone and a text encoder."""

    @classmethod
    def from_vision_text_dual_encoder(
        cls, source: ProcessorMixin | str | Path, config: PreTrainedConfig, **loading: Any
    ) -> Self:
        """Makes a processor with the image processor and the tokenizer of a `VisionTextDualEncoderProcessor`.

        Texts are cut where the text encoder or the tokenizer cut them.

        Args:
            source: the processor, or its folder or Hub id.
            config: configuration of the model (`from_vision_text_dual_encoder` of the model).
            loading: keyword arguments of `from_pretrained`, such as `revision`.

        Raises:
            InputError: if the image processor makes images of a size that the backbone cannot read.
            ModelFolderError: if there is no such folder or repository, or it has no processor.
            ModelKindError: if it is a processor of another kind.
        """
        own: Any = cls
        if isinstance(source, str | Path):
            source = load_processor(AutoProcessor, source, **{"backend": "pil"} | loading)
        if not isinstance(source, VisionTextDualEncoderProcessor):
            raise ModelKindError(f"a {type(source).__name__} is no VisionTextDualEncoderProcessor")
        check_image_size(source.image_processor, config.vision_config)
        tokenizer = copy.deepcopy(source.tokenizer)
        length = longest_text(config.text_config, tokenizer)
        return own(source.image_processor, tokenizer, config.text_prompt, max_text_length=length)

    def to_vision_text_dual_encoder(self: Any) -> VisionTextDualEncoderProcessor:
        """Makes a `VisionTextDualEncoderProcessor` with the same image processor, and with a copy of the tokenizer
        whose `model_max_length` is the length at which this processor cuts texts.

        That class cuts and pads texts only where it is asked to, with `truncation=True, padding=True`.

        Raises:
            ModelKindError: if that class cannot do what this processor does: put a prompt before texts, or pad every
                text to the full length.
        """
        if self.text_prompt:
            raise _refusal(f"puts no prompt before texts, and this one puts {self.text_prompt!r}")
        if self.pad_to_max_length:
            raise _refusal("pads texts only where it is asked to, and this one pads every text to the full length")
        tokenizer = copy.deepcopy(self.tokenizer)
        tokenizer.model_max_length = self.max_text_length
        return VisionTextDualEncoderProcessor(self.image_processor, tokenizer)


def _refusal(reason: str) -> ModelKindError:
    return ModelKindError(
        f"a VisionTextDualEncoderProcessor of transformers cannot replace this processor: it {reason}"
    )

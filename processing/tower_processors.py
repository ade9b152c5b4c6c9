"""Makes processors for models of two pretrained towers; saved folders do not include this module."""

from pathlib import Path
from typing import Any

from transformers import AutoImageProcessor, AutoTokenizer, PreTrainedConfig

from ..configuration.text_towers import text_positions
from ..utils.pretrained import load_processor
from .processing_text_image import LARGEST_LENGTH

MAX_TEXT_TOKENS = 64  # of MURAL and ETCL


def processor_of_towers(processor_class: Any, image: Any, text: Any, config: PreTrainedConfig, **loading: Any) -> Any:
    """Makes the processor of a model of two pretrained towers: see `DualEncoderProcessor.from_towers`."""
    if isinstance(image, str | Path):
        # Pillow on every machine: transformers would use torchvision if it is installed, which computes other pixels.
        image = load_processor(AutoImageProcessor, image, **{"backend": "pil"} | loading)
    if isinstance(text, str | Path):
        text = load_processor(AutoTokenizer, text, **loading)
    is_padded = "siglip" in config.text_config.model_type
    longest = longest_text(config.text_config, text)
    length = longest if is_padded else min(longest, MAX_TEXT_TOKENS)
    options = {"max_text_length": length, "pad_to_max_length": is_padded}
    return processor_class(image, text, text_prompt=config.text_prompt, **options)


def longest_text(config: PreTrainedConfig, tokenizer: Any) -> int:
    """Returns the number of tokens of the longest text that a text encoder and its tokenizer accept."""
    return int(min(text_positions(config) or LARGEST_LENGTH, tokenizer.model_max_length, LARGEST_LENGTH))

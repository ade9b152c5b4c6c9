"""Makes processors for models of two pretrained towers; saved folders do not include this module."""

from pathlib import Path
from typing import Any

from transformers import AutoImageProcessor, AutoTokenizer, PreTrainedConfig

from ..configuration.text_towers import text_positions
from ..utils.errors import InputError
from ..utils.pretrained import load_processor
from .processing_text_image import LARGEST_LENGTH

MAX_TEXT_TOKENS = 64  # of MURAL and ETCL
# Vision backbones that read images of any size, although they state their training size.
_READ_ANY_SIZE = frozenset(
    ["convnext", "convnextv2", "dinov2", "dinov3_vit", "siglip2_vision_model", "swin", "swinv2"]
)


def processor_of_towers(processor_class: Any, image: Any, text: Any, config: PreTrainedConfig, **loading: Any) -> Any:
    """Makes the processor of a model of two pretrained towers: see `DualEncoderProcessor.from_towers`."""
    if isinstance(image, str | Path):
        # Pillow on every machine: transformers would use torchvision if it is installed, which computes other pixels.
        image = load_processor(AutoImageProcessor, image, **{"backend": "pil"} | loading)
    if isinstance(text, str | Path):
        text = load_processor(AutoTokenizer, text, **loading)
    check_image_size(image, config.vision_config)
    is_padded = "siglip" in config.text_config.model_type
    longest = longest_text(config.text_config, text)
    length = longest if is_padded else min(longest, MAX_TEXT_TOKENS)
    options = {"max_text_length": length, "pad_to_max_length": is_padded}
    return processor_class(image, text, text_prompt=config.text_prompt, **options)


def check_image_size(image_processor: Any, config: PreTrainedConfig) -> None:
    """Checks that a vision backbone can read the images from an image processor."""
    made = getattr(image_processor, "crop_size", None) if getattr(image_processor, "do_center_crop", False) else None
    made = made or getattr(image_processor, "size", None) or {}
    sides = {side for name, side in dict(made).items() if name in ("height", "width", "shortest_edge")}
    # Backbones with a table of positions for a fixed number of patches; others read any size.
    reads = getattr(config, "image_size", None) if hasattr(config, "patch_size") else None
    wanted = set(reads if isinstance(reads, list | tuple) else [reads])
    reads_any = config.model_type in _READ_ANY_SIZE or None in wanted
    if sides and not reads_any and sides != wanted:
        raise InputError(
            f"the image processor makes images of {sorted(sides)} pixels a side, but the backbone reads "
            f"{sorted(wanted)}: use the backbone's image processor"
        )


def longest_text(config: PreTrainedConfig, tokenizer: Any) -> int:
    """Returns the number of tokens of the longest text that a text encoder and its tokenizer accept."""
    return int(min(text_positions(config) or LARGEST_LENGTH, tokenizer.model_max_length, LARGEST_LENGTH))

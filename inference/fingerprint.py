"""The fingerprint of a model: a digest of its weights and settings, which names what is kept on disk for it."""

import hashlib
from typing import Any

from torch import nn

from ..modeling.weight_digest import add_weights


def fingerprint(model: nn.Module, settings: str) -> str:
    """A digest of a model's weights, and of the settings that prepare its inputs, in 24 hexadecimal digits."""
    hashing = hashlib.blake2b(settings.encode(), digest_size=12)
    add_weights(hashing, model.state_dict(), lambda name, value: f"{name} {value.dtype}")
    return hashing.hexdigest()


def image_fingerprint(model: nn.Module, processor: Any) -> str:
    """The fingerprint of a dual encoder and its processor: a digest of everything that the embedding of an image
    depends on, other than the image. Of a text encoder, which has no image processor, a digest of the model alone."""
    image_processor = getattr(processor, "image_processor", None)
    return fingerprint(model, image_processor.to_json_string() if image_processor else "")

"""The fingerprint of a model: a digest of its weights and settings, which names what is kept on disk for it."""

import hashlib

from torch import nn

from ..modeling.weight_digest import add_weights


def fingerprint(model: nn.Module, settings: str) -> str:
    """A digest of a model's weights, and of the settings that prepare its inputs, in 24 hexadecimal digits."""
    hashing = hashlib.blake2b(settings.encode(), digest_size=12)
    add_weights(hashing, model.state_dict(), lambda name, value: f"{name} {value.dtype}")
    return hashing.hexdigest()

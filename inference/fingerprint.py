"""What tells a model from any other: a digest of its weights and settings, for what is kept on disk."""

import hashlib

from torch import nn

from ..modeling.weight_digest import add_weights


def fingerprint(model: nn.Module, settings: str) -> str:
    """Of the weights of a model and of how its inputs are prepared, in 24 hexadecimal digits."""
    hashing = hashlib.blake2b(settings.encode(), digest_size=12)
    add_weights(hashing, model.state_dict(), lambda name, value: f"{name} {value.dtype}")
    return hashing.hexdigest()

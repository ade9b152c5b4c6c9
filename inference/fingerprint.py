"""The fingerprint of a model: a digest of its weights and settings, which names what is kept on disk for it."""

import hashlib

import torch
from torch import nn


def fingerprint(model: nn.Module, settings: str) -> str:
    """A digest of a model's weights, and of the settings that prepare its inputs, in 24 hexadecimal digits."""
    hashing = hashlib.blake2b(settings.encode(), digest_size=12)
    for name, tensor in model.state_dict().items():
        hashing.update(f"{name} {tensor.dtype}".encode())
        hashing.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return hashing.hexdigest()

"""What tells a model from any other: a digest of its weights and settings, for what is kept on disk."""

import hashlib

import torch
from torch import nn


def fingerprint(model: nn.Module, settings: str) -> str:
    """Of the weights of a model and of how its inputs are prepared, in 24 hexadecimal digits."""
    hashing = hashlib.blake2b(settings.encode(), digest_size=12)
    for name, tensor in model.state_dict().items():
        hashing.update(f"{name} {tensor.dtype}".encode())
        hashing.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return hashing.hexdigest()

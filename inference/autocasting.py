"""The number format that encoders compute in."""

import torch


def autocasting(device: torch.device, precision: str) -> torch.autocast:
    """A context, and a decorator, in which matrix products and convolutions are computed in a precision.

    Weights, normalizations and results stay in float32, so that the embeddings of one model are comparable whatever
    they were computed in.

    Args:
        device: the device of the model.
        precision: `float32`, which changes nothing, `bfloat16` or `float16`.
    """
    return torch.autocast(device.type, getattr(torch, precision), enabled=precision != "float32")

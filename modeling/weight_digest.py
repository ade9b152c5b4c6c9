"""Feeds the weights of a model into a digest, by which cached features and shared embeddings are recognized."""

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor


class Digest(Protocol):
    """A digest of `hashlib`, such as `hashlib.sha256()`."""

    def update(self, data: bytes, /) -> None: ...


def add_weights(
    digest: Digest, weights: Mapping[str, Tensor], describe: Callable[[str, Tensor], str] | None = None
) -> None:
    """Updates a digest with the bytes of weights, one after another in the order of the mapping.

    Files and adapters that exist name digests of three kinds, which differ in the algorithm, in the order of the
    weights and in what is added of each weight beside its bytes. Callers choose these and must not change them.

    Args:
        digest: is updated.
        weights: by name; on any device, of any data type.
        describe: returns a text about a weight, from its name and its value, that is added before its bytes.
    """
    for name, value in weights.items():
        if describe is not None:
            digest.update(describe(name, value).encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())

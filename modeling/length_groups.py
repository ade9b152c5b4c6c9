"""Rows of similar length together: a batch of captions is mostly padding when a few of them are long."""

from collections.abc import Callable

import torch
from torch import Tensor


def encode_by_length(encode: Callable[[Tensor, int], Tensor], attention_mask: Tensor, groups: int) -> Tensor:
    """`encode(rows, longest)` of all rows, in groups of similar length, each cut after its own longest row.

    Padding changes nothing but the time.

    Args:
        encode: places of texts [n] and how many of their columns to read -> embeddings [n, d].
        attention_mask ([N, T]): of all texts, which are padded on the right.
        groups: into how many.

    Returns:
        Embeddings [N, d].
    """
    lengths = attention_mask.sum(1)
    order = lengths.argsort(stable=True)
    parts = [encode(rows, int(lengths[rows[-1]])) for rows in order.chunk(groups)]
    return torch.cat(parts)[order.argsort()]

"""Encodes texts of similar length together: a batch is mostly padding if a few of its captions are long."""

from collections.abc import Callable

import torch
from torch import Tensor


def encode_by_length(encode: Callable[[Tensor, int], Tensor], attention_mask: Tensor, groups: int) -> Tensor:
    """Encodes all rows, in groups of similar length, each of which is cut after its own longest row.

    Padding has no effect on the result; only the time changes.

    Args:
        encode: maps indices of rows [n], and the number of columns to read, to embeddings [n, d].
        attention_mask ([N, T]): mask of all rows, which are padded on the right.
        groups: number of groups.

    Returns:
        Embeddings [N, d].
    """
    lengths = attention_mask.sum(1)
    order = lengths.argsort(stable=True)
    parts = [encode(rows, int(lengths[rows[-1]])) for rows in order.chunk(groups)]
    return torch.cat(parts)[order.argsort()]

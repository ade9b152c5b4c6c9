"""Encodes texts of similar length together: a batch is mostly padding if a few of its captions are long."""

from collections.abc import Callable

import torch
from torch import Tensor


def text_ends(attention_mask: Tensor) -> Tensor:
    """Returns the number of columns up to the last token of each row [N], of a mask [N, T]: the length of a text that
    is padded on the right, and T of one that is padded on the left."""
    columns = torch.arange(1, attention_mask.shape[1] + 1, device=attention_mask.device)
    return (attention_mask.bool() * columns).amax(1)


def encode_by_length(encode: Callable[[Tensor, int], Tensor], attention_mask: Tensor, groups: int) -> Tensor:
    """Encodes all rows, in groups of similar length, each of which is cut after its own longest row.

    Padding has no effect on the result; only the time changes.

    Args:
        encode: maps indices of rows [n], and the number of columns to read, to embeddings [n, d].
        attention_mask ([N, T]): mask of all rows. Rows that are padded on the left are not cut.
        groups: number of groups.

    Returns:
        Embeddings [N, d].
    """
    lengths = text_ends(attention_mask)
    order = lengths.argsort(stable=True)
    parts = [encode(rows, int(lengths[rows[-1]])) for rows in order.chunk(groups)]
    return torch.cat(parts)[order.argsort()]

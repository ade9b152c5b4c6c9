"""Cosine distances between embeddings, and which pairs of them belong together (SMALR, LIWE)."""

import torch
from torch import Tensor
from torch.nn.functional import normalize


def pairwise_distances(x: Tensor, y: Tensor) -> Tensor:
    """Computes the cosine distance, 1 - cos(x, y), of every row of `x` to every row of `y`.

    Args:
        x: embeddings; they need not be normalized.
        y: embeddings of the same width.

    Returns:
        The distances, in float32 at least.

    Shape:
        x: [A, d]; y: [B, d]; result: [A, B].

    Raises:
        ValueError: if `x` and `y` are not matrices of the same width.
    """
    if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[1]:
        raise ValueError(f"x and y must be [A, d] and [B, d], but are {list(x.shape)} and {list(y.shape)}")
    return normalized_distances(normalize_wide(x), normalize_wide(y))


def normalize_wide(x: Tensor) -> Tensor:
    """Returns the rows of `x` [N, d] with unit length, in float32 at least."""
    return normalize(x.to(torch.promote_types(x.dtype, torch.float32)), dim=-1)


def normalized_distances(x: Tensor, y: Tensor) -> Tensor:
    """Computes `pairwise_distances` for rows that are normalized already, as by `normalize_wide`."""
    # Under autocast the matrix product would run in half precision, whose rounding errors are as large as the margin.
    with torch.autocast(x.device.type, enabled=False):
        return 1 - x @ y.T


def same_label(rows: Tensor, columns: Tensor) -> Tensor:
    """Returns the mask of the pairs that belong together: those with an equal label, such as the index of their image.

    Each of several sentences about an image carries that image's label:
    `torch.arange(n_images).repeat_interleave(sentences_per_image)`.

    Shape:
        rows: [A] integer; columns: [B] integer; result: [A, B] bool.
    """
    return rows[:, None] == columns[None, :]

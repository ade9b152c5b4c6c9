"""Cosine similarity of embeddings, for ranking and reranking."""

import numpy as np
import torch
from torch import Tensor, nn

from ..utils.errors import InputError

# Cosines of float32 embeddings carry rounding errors of this size: a smaller difference is a tie.
COSINE_TIE = 1e-6
# Scores held at once, 64 MB in float32: memory grows with the larger of the two sides, not with their product.
SCORES_AT_ONCE = 2**24


def unit_rows(embeddings: np.ndarray) -> Tensor:
    """Embeddings as unit vectors, float32 [N, d]; they must be finite."""
    return nn.functional.normalize(finite_matrix(embeddings, "embeddings").float(), dim=1)


def finite_matrix(values: np.ndarray, name: str) -> Tensor:
    tensor = torch.as_tensor(np.asarray(values))
    if tensor.dim() != 2 or 0 in tensor.shape:
        raise ValueError(f"{name} must be a matrix with at least one row and column, got shape {tuple(tensor.shape)}")
    # Every comparison with NaN is false: the right items of a model that diverged would always rank first.
    broken = (~tensor.isfinite()).any(1).nonzero()
    if len(broken):
        raise InputError(
            f"{name}: {len(broken)} of {len(tensor)} rows hold NaN or infinity, the first is row {int(broken[0])}"
        )
    return tensor


def first_dimensions(embeddings: np.ndarray, width: int) -> np.ndarray:
    """The first dimensions of embeddings, as vectors of unit length. [N, d], width -> [N, width]"""
    cut = torch.from_numpy(embeddings[:, :width])
    return nn.functional.normalize(cut, dim=-1).numpy()

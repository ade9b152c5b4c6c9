"""Compares graphs with the model that they were made of, on batches of several sizes."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...configuration.errors import NonFiniteError
from .graphs import Tower

# Largest difference of a value of an embedding of unit length, of a graph in float32.
LARGEST_DIFFERENCE = 1e-4


@torch.no_grad()
def largest_difference(
    model: nn.Module, tower: str, session: Any, batches: Iterable[Mapping[str, Tensor]], called: str
) -> float:
    """Returns the largest difference of any value of the normalized embeddings of a graph from those of its model.

    Args:
        model: the dual encoder.
        tower: `text` or `image`.
        session: the graph, opened by onnxruntime.
        batches: inputs of the tower.
        called: name of the graph in errors.

    Raises:
        NonFiniteError: if the graph computes NaN or infinity where the model does not.
    """
    largest = 0.0
    module = Tower(model, tower)
    for inputs in batches:
        expected = _normalized(module(dict(inputs)).float().numpy())
        (found,) = session.run(None, {name: value.numpy() for name, value in inputs.items()})
        difference = float(np.abs(_normalized(found) - expected).max())
        if not np.isfinite(difference):
            raise NonFiniteError(
                f"{called} computes NaN or infinity, or embeddings of length 0: leave out its precision"
            )
        largest = max(largest, difference)
    return largest


def _normalized(features: np.ndarray) -> np.ndarray:
    return features / np.linalg.norm(features, axis=-1, keepdims=True)

"""Tells whether a graph of the model is being exported, which must not depend on the values in a tensor.

In such a graph, rows of several kinds all go through the layers of every kind, padding is computed and discarded
afterwards, and inputs are not checked. The results are the same, but it costs time and memory.
"""

import torch


def is_exporting() -> bool:
    """Returns whether `torch.export`, on which ONNX exports are built, or `torch.jit.trace` is running."""
    return torch.compiler.is_exporting() or torch.jit.is_tracing()

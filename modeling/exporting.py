"""Whether a graph of the model is being made, which may hold nothing that depends on what stands in a tensor.

There, rows of several kinds all go through every kind's layers, padding is read and left out afterwards, and inputs
are not checked. The results are the same; it costs time and memory, which is why it is not done otherwise.
"""

import torch


def is_exporting() -> bool:
    """Within `torch.export`, of which ONNX exports are made, and `torch.jit.trace`."""
    return torch.compiler.is_exporting() or torch.jit.is_tracing()

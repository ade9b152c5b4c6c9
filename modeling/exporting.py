"""Tells whether a graph of the model is being made, which must not depend on the values in a tensor.

In such a graph, rows of several kinds all go through the layers of every kind, padding is computed and discarded
afterwards, and inputs are not checked. The results are the same, but it costs time and memory.
"""

import torch


def is_exporting() -> bool:
    """Returns whether `torch.export`, on which ONNX exports are built, or `torch.jit.trace` is running, or
    `torch.compile` without gradients, which then makes one graph of a tower (`fullgraph=True`).

    Training that is compiled goes on to treat rows by their kind, which needs several graphs and costs less.
    """
    compiler = torch.compiler
    if compiler.is_exporting() or torch.jit.is_tracing():
        return True
    return compiler.is_compiling() and not torch.is_grad_enabled()

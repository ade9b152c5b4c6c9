"""Embeddings of all processes as one batch, with gradient."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class _GatherWithGradient(torch.autograd.Function):
    """[N, d] on every process -> [world * N, d] on all of them.

    Every process computes the whole batch's loss. The gradient of its own rows is the sum over the processes;
    DistributedDataParallel then averages the weights' gradients, so that the result is the gradient of one process
    with all of the batch.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        gathered = rows.new_empty(dist.get_world_size() * len(rows), *rows.shape[1:])
        dist.all_gather_into_tensor(gathered, rows.contiguous())
        return gathered

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient.chunk(dist.get_world_size())[dist.get_rank()]


def gather_rows(rows: Tensor) -> Tensor:
    """Rows of all processes in the order of their ranks; as they are where there is one process. [N, ...] -> [world *
    N, ...]"""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return rows
    return _GatherWithGradient.apply(rows)

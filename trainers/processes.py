"""Gathers the embeddings and labels of all processes, which may have different numbers of rows, with gradient. Every
process computes the loss of the whole batch. The gradient of a process's rows is the sum over the processes;
DistributedDataParallel then averages the gradients of the weights. Sum and average cancel: the result is the gradient
of one process with the whole batch."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def row_counts(count: int, device: torch.device) -> list[int]:
    """The number of rows of each process, in the order of the ranks; `[count]` if there is one process."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return [count]
    counts = [torch.empty((), dtype=torch.long, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor(count, device=device))
    return torch.stack(counts).tolist()


def gather_rows(rows: Tensor, counts: list[int]) -> Tensor:
    """Gathers the rows of all processes, `counts` each, in the order of the ranks, [n, ...] -> [N, ...]."""
    return rows if len(counts) == 1 else _GatherWithGradient.apply(rows, counts)


def gather_labels(positives: Tensor, counts: list[int]) -> Tensor:
    """Gathers labels of additional positives (see `contrastive_loss`), integers, [n] or [K, n] -> [N] or [K, N]."""
    if len(counts) > 1 and positives.dtype == torch.bool:
        raise TypeError(
            f"positives of {len(counts)} processes must be integer labels [K, n], which can be compared across "
            f"processes; a boolean mask {list(positives.shape)} covers only the rows of its own process"
        )
    return gather_rows(positives.movedim(-1, 0), counts).movedim(0, -1)


class _GatherWithGradient(torch.autograd.Function):
    """[n, ...] on each process -> [N, ...] on all of them."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int]) -> Tensor:
        ctx.counts = counts
        largest = max(counts)
        missing = largest - len(rows)  # collectives exchange tensors of equal size
        padded = torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])]) if missing else rows.contiguous()
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient.split(ctx.counts)[dist.get_rank()], None

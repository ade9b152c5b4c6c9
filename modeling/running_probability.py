"""p_avg of RC3's interpolated contrastive losses: how well the model did over the last steps (Zhou et al. 2023,
section 2.3.3, equation 6)."""

import torch
import torch.distributed as dist
from torch import Tensor, nn


class RunningProbability(nn.Module):
    """The mean of the last `history` steps' probabilities, 0 before any; the paper's history is 100 steps.

    The steps lie in buffers, so that checkpoints save them and a resumed run goes on with them. The entry of a step is
    the mean over its batches and over the processes, which therefore agree. Batches whose gradients are accumulated
    make one step: they all see the same average.

    Args:
        history: steps that count.
    """

    probabilities: Tensor  # [history], the newest at (steps - 1) % history; 0 where no step has been
    steps: Tensor  # []
    pending: Tensor  # [2]: sum and number of the batches of a step that has not ended

    def __init__(self, history: int = 100) -> None:
        super().__init__()
        self.register_buffer("probabilities", torch.zeros(history))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        # Checkpoints are written between steps.
        self.register_buffer("pending", torch.zeros(2), persistent=False)

    @property
    def average(self) -> Tensor:
        """p_avg []."""
        return self.probabilities.sum() / self.steps.clamp(1, len(self.probabilities))

    @torch.no_grad()
    def update(self, probability: Tensor, *, ends_step: bool = True) -> None:
        """Adds what a batch of training has found.

        Args:
            probability: the mean over the batch's anchors [], as in `InterpolatedContrast`.
            ends_step: whether the optimiser steps with this batch, or with a later one that is yet to come.
        """
        probability = probability.detach().float()
        self.pending += torch.stack([probability, torch.ones_like(probability)])
        if ends_step:
            total, count = self._mean_over_processes(self.pending)
            self.probabilities[self.steps % len(self.probabilities)] = total / count
            self.steps += 1
            self.pending.zero_()

    @staticmethod
    def _mean_over_processes(value: Tensor) -> Tensor:
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            value = value.clone()
            dist.all_reduce(value)
            value /= dist.get_world_size()
        return value

"""p_avg in RC3's interpolated contrastive losses: how well the model did in the last steps (Zhou et al. 2023, section
2.3.3, equation 6)."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import initialization as init


class RunningProbability(nn.Module):
    """The mean probability of the last `history` steps; 0 before the first step.

    Buffers hold the probabilities, so that checkpoints save them and a resumed run continues with them. The entry of a
    step is the mean over all anchors of all its batches and processes. Processes therefore agree, and batches whose
    gradients are accumulated count as one step, during which the average does not change.

    Args:
        history: number of recent steps that are averaged; the paper's is 100.
    """

    probabilities: Tensor  # [history], in turn; 0 where no step has been
    steps: Tensor  # [], how many there have been
    pending: Tensor  # [2]: of the step that has not ended, the sum over its anchors and their number

    def __init__(self, history: int = 100) -> None:
        super().__init__()
        self.register_buffer("probabilities", torch.zeros(history))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("pending", torch.zeros(2), persistent=False)  # checkpoints are written between steps

    def reset(self) -> None:
        """Restores the initial state."""
        for buffer in (self.probabilities, self.steps, self.pending):
            init.zeros_(buffer)

    @property
    def average(self) -> Tensor:
        """p_avg, a scalar."""
        return self.probabilities.sum() / self.steps.clamp(1, len(self.probabilities))

    @torch.no_grad()
    def observe(self, probability: Tensor, anchors: int = 1) -> None:
        """Records the mean probability over the `anchors` of a batch; it counts from the next step on."""
        self.pending += torch.stack([probability * anchors, torch.full_like(probability, anchors)])

    @torch.no_grad()
    def end_step(self) -> None:
        """Turns the records of this step into an entry. All processes must end their steps together."""
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(self.pending)
        total, anchors = self.pending
        self.probabilities[self.steps % len(self.probabilities)] = total / anchors
        self.steps += 1
        self.pending.zero_()

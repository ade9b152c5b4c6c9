"""p_avg of RC3's interpolated contrastive losses: how well the model did over the last steps (Zhou et al. 2023,
section 2.3.3, equation 6)."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import initialization as init


class RunningProbability(nn.Module):
    """The mean of the last `history` steps' probabilities, 0 before any; the paper's history is 100 steps.

    The steps lie in buffers, so that checkpoints save them and a resumed run goes on with them. A step's entry is the
    mean over all anchors of all its batches and processes: processes agree, and batches whose gradients are
    accumulated make one step, during which the average stays as it is.

    Args:
        history: steps that count.
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
        """As it begins."""
        for buffer in (self.probabilities, self.steps, self.pending):
            init.zeros_(buffer)

    @property
    def average(self) -> Tensor:
        """p_avg []."""
        return self.probabilities.sum() / self.steps.clamp(1, len(self.probabilities))

    @torch.no_grad()
    def observe(self, probability: Tensor, anchors: int = 1) -> None:
        """Notes the mean [] over the `anchors` of a batch; it counts from the next step on."""
        self.pending += torch.stack([probability * anchors, torch.full_like(probability, anchors)])

    @torch.no_grad()
    def end_step(self) -> None:
        """Makes what was observed an entry. All processes end their steps together."""
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(self.pending)
        total, anchors = self.pending
        self.probabilities[self.steps % len(self.probabilities)] = total / anchors
        self.steps += 1
        self.pending.zero_()

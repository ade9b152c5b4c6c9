"""The learned temperature, which divides the cosines of a softmax, and its bound.

Nothing in the loss keeps a temperature positive: once nearly all pairs are told apart, the gradient lowers it at every
step. So it is never below 0.01, which is where CLIP stops too (Radford et al. 2021, section 2.5: logits are multiplied
by at most 100).
"""

from typing import Any

import torch
from torch import Tensor, nn

MIN_TEMPERATURE = 0.01


class _AtLeast(torch.autograd.Function):
    """The greater of a value and its bound. Below the bound, a gradient that would raise the value passes, and one
    that would lower it does not; `clamp` lets neither pass, so that the value would stay there for good."""

    @staticmethod
    def forward(value: Tensor, bound: float) -> Tensor:
        return value.clamp(min=bound)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        value, bound = inputs
        ctx.save_for_backward(value < bound)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (is_below,) = ctx.saved_tensors
        return gradient.masked_fill(is_below & (gradient > 0), 0), None


def at_least(value: Tensor, bound: float) -> Tensor:
    """`value`, or `bound` where it is below; what is not below is left to the bit, and so is its gradient."""
    return _AtLeast.apply(value, bound)


class LearnedTemperature(nn.Module):
    """
    Args:
        initial: temperature.

    Shape: [].
    """

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(float(initial)))

    def forward(self) -> Tensor:
        """What divides the cosines; a tensor of its own, part of the graph."""
        return at_least(self.temperature, MIN_TEMPERATURE)

    @torch.no_grad()
    def bound(self) -> None:
        """Brings the weight itself back to its bound; to be called when an optimiser has stepped."""
        self.temperature.clamp_(min=MIN_TEMPERATURE)

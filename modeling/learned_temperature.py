"""The learned temperature, by which the cosines in a softmax are divided, and its lower bound.

Nothing in the loss keeps a temperature positive: once nearly all pairs are told apart, the gradient lowers it at every
step. It is therefore bounded by 0.01, like CLIP's (Radford et al. 2021, section 2.5: logits are multiplied by at most
100).
"""

from typing import Any

import torch
from torch import Tensor, nn

MIN_TEMPERATURE = 0.01


class _AtLeast(torch.autograd.Function):
    """Computes the maximum of a value and its bound.

    Below the bound, a gradient that would raise the value passes, and one that would lower it does not. `clamp`
    lets neither pass, so that a value below the bound would never change again.
    """

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
    """Returns `value`, or `bound` where `value` is below it. Elsewhere, value and gradient are unchanged to the
    bit."""
    return _AtLeast.apply(value, bound)


class LearnedTemperature(nn.Module):
    """A temperature that is trained.

    Args:
        initial: initial temperature.
    """

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(float(initial)))

    def forward(self) -> Tensor:
        """Returns the bounded temperature [], by which cosines are divided, as a new tensor in the graph."""
        return at_least(self.temperature, MIN_TEMPERATURE)

    @torch.no_grad()
    def bound(self) -> None:
        """Raises the parameter itself to the bound; to be called after each step of the optimizer."""
        self.temperature.clamp_(min=MIN_TEMPERATURE)

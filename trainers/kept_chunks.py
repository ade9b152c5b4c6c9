"""How many chunks of a batch may stay in memory between the two passes of gradient caching."""

from typing import Any

import torch
from torch import nn

from ..configuration.free_memory import available_memory

# A share of the memory that is free when training begins stays free: for the loss, the gradients and the chunk that is
# embedded with a graph while the kept ones are still there.
_LEFT_FREE = 0.5


class WhileMemoryLasts:
    """Says of one chunk after the other whether its activations may stay in memory.

    The first chunk's always may, because one chunk always has to fit. A further one's may if half of the memory that
    was free when training began stays free, as far as the chunk before tells. What other processes take counts as
    well, so that several processes on one machine share its memory.

    Args:
        model: the model, whose gradients are yet to be allocated in the first batch.
        device: where it runs.

    Example:
        >>> keeps = WhileMemoryLasts(model, torch.device("cpu"))
        >>> keeps(0)
        True
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.model, self.device = model, device
        self._reserve: float | None = None
        self._before = 0

    def __call__(self, number: int) -> bool:
        """Whether to keep the chunk of this number, which is 0 for the first one of each batch."""
        free = free_memory(self.device)
        if free is None:
            return number == 0
        if self._reserve is None:
            self._reserve = _LEFT_FREE * free
        if number == 0:
            self._before = free
            return True
        last, self._before = self._before - free, free
        # Chunks are sorted by the length of their texts: the next may be larger than the last.
        return free - _gradients_to_come(self.model) - 2 * max(last, 0) >= self._reserve


def free_memory(device: torch.device) -> int | None:
    """The memory in bytes that is free on a device, with what torch has reserved there but does not use; None for
    devices that cannot tell."""
    if device.type == "cpu":
        return available_memory()
    module: Any = getattr(torch, device.type, None)
    if device.type == "mps":  # has the memory of the machine, up to a limit of its own
        return min(available_memory(), module.recommended_max_memory() - module.current_allocated_memory())
    if not hasattr(module, "mem_get_info"):
        return None
    unused = module.memory_reserved(device) - module.memory_allocated(device)
    return int(module.mem_get_info(device)[0] + unused)


def _gradients_to_come(model: nn.Module) -> int:
    """The bytes of the gradients that the weights do not have yet."""
    return sum(weight.nbytes for weight in model.parameters() if weight.requires_grad and weight.grad is None)

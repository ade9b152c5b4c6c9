"""How many chunks of a batch stay in memory between the two passes of gradient caching."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ..configuration.free_memory import available_memory

# The share of the free memory that kept chunks may take. The rest is for the loss, the chunk that is embedded with a
# graph while they are still there, and later batches with longer texts.
_SHARE = 0.5
# Gradients, and the two moments that Adam and LAMB hold of each weight, are not there yet in the first batch.
_COPIES_TO_COME = 3


class KeptChunks(Protocol):
    """Says which chunks stay in memory."""

    def __call__(self, number: int) -> bool:
        """Whether the chunk with this number stays; the first one of each batch has the number 0. This is called for
        one chunk after the other, until it returns False."""

    def measured(self) -> AbstractContextManager[Any]:
        """The context in which a chunk that stays is embedded."""


class FixedNumber:
    """As many chunks as are asked for.

    Args:
        count: their number.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, number: int) -> bool:
        return number < self.count

    def measured(self) -> AbstractContextManager[Any]:
        return nullcontext()


class WhileMemoryLasts:
    """As many chunks as half of the memory holds that is free when the first batch begins, without that of gradients
    and of the optimizer's state, and at least one, because one always has to fit.

    The activations of the first batch's chunks are counted; later batches keep as many chunks.

    Args:
        model: the model, whose gradients and whose optimizer's state are yet to be allocated.
        device: where it runs.
        sharing: number of processes that share the memory of the device.

    Example:
        >>> keeps = WhileMemoryLasts(model, torch.device("cpu"))
        >>> keeps(0)
        True
    """

    def __init__(self, model: nn.Module, device: torch.device, *, sharing: int = 1) -> None:
        self.model, self.device, self.sharing = model, device, sharing
        self.count: int | None = None
        self._budget = 0.0
        self._last = self._largest = self._total = 0
        self._counted: set[int] = set()

    def __call__(self, number: int) -> bool:
        if self.count is None:
            self._decide(number)
        return self.count is None or number < self.count

    def measured(self) -> AbstractContextManager[Any]:
        if self.count is not None:
            return nullcontext()
        self._last = 0
        return saved_tensors_hooks(torch.compiler.disable(self._count), _unchanged)

    def _decide(self, number: int) -> None:
        if number == 0 and self._largest:  # all chunks of the first batch stayed, or it ended in an error
            self.count = max(1, int(self._budget // self._largest))
        elif number == 0:
            free = free_memory(self.device)
            self.count = 1 if free is None else None
            self._budget = _SHARE * ((free or 0) / self.sharing - _bytes_to_come(self.model))
            stored = (_storage(weight) for weight in self.model.parameters())
            self._counted = {storage[0] for storage in stored if storage}
        # Chunks are sorted by the length of their texts: the next may be larger than the last.
        elif self._total + 2 * self._last > self._budget:
            self.count = number
        if self.count is not None:
            self._counted = set()

    def _count(self, tensor: Tensor) -> Tensor:
        """Adds the memory of a tensor that the graph keeps, unless it is a weight or was counted before."""
        storage = _storage(tensor)
        if storage and storage[0] not in self._counted:
            self._counted.add(storage[0])
            self._last += storage[1]
            self._largest = max(self._largest, self._last)
            self._total += storage[1]
        return tensor


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


def processes_of_machine(device: torch.device, world_size: int) -> int:
    """The number of processes of a run that share the memory of a device: all of a machine for its processor, and one
    for each accelerator."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", world_size)) if device.type == "cpu" else 1


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor


def _storage(tensor: Tensor) -> tuple[int, int] | None:
    """The address and the size in bytes of what a tensor is stored in; None for tensors that are made of others, such
    as sparse and quantized ones."""
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    except (RuntimeError, NotImplementedError, ValueError):
        return None


def _bytes_to_come(model: nn.Module) -> int:
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    return _COPIES_TO_COME * sum(weight.numel() * weight.element_size() for weight in trained)

"""Pairs of embeddings for tests of contrastive losses, which of them belong together, and the memory of a loss."""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

TILES = (1, 3, 4, 6, 7, 100)  # of 7 rows: one row, tiles that do not divide, one tile, more than there is
LABELS = torch.tensor([4, 0, 4, 1, 2, 4, 2])
GROUPINGS = torch.tensor([[4, 0, 4, 1, 2, 4, 2], [0, 0, 1, 2, 3, 4, 5]])
ONE_WAY = torch.zeros(7, 7, dtype=torch.bool)  # right in one direction only, and the diagonal not marked
ONE_WAY[0, 3] = ONE_WAY[5, 1] = ONE_WAY[5, 2] = True
POSITIVES = {"none": None, "labels": LABELS, "groupings": GROUPINGS, "mask": ONE_WAY}


def embeddings(
    count: int = 7, width: int = 5, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(count, width, dtype=torch.float64, generator=generator) for _ in range(2))
    return x.to(dtype).requires_grad_(), (y + 0.5 * x.detach()).to(dtype).requires_grad_()


def is_further_positive(positives: torch.Tensor | None, i: int, j: int) -> bool:
    if positives is None or i == j:
        return False
    if positives.dtype == torch.bool:
        return bool(positives[i, j])
    return any(labels[i] == labels[j] for labels in positives.reshape(-1, positives.shape[-1]))


class PeakMemory(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.alive = self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor):
                self.count(value.untyped_storage())
        return result

    def count(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata not in self.sizes:
            self.sizes[storage._cdata] = storage.nbytes()
            self.alive += storage.nbytes()
            self.peak = max(self.peak, self.alive)
            weakref.finalize(storage, self.forget, storage._cdata)

    def forget(self, key: int) -> None:
        self.alive -= self.sizes.pop(key)


def peak_memory(loss, count: int, **options) -> int:
    x, y = embeddings(count, 16, torch.float32)
    temperature = torch.tensor(0.1, requires_grad=True)
    with PeakMemory() as memory:
        sum(loss(x, y, temperature, **options)).backward()
    return memory.peak

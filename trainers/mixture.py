"""Batches for several tasks at once: every training step takes one batch of each.

An epoch is one pass over the first task's data; the other tasks' data run in step, reshuffled whenever they have been
seen. What a batch holds is a function of the seed, the epoch and the batch's number, so that a resumed run sees what
an unbroken one would have seen.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from torch.utils.data import Dataset, Sampler


class SizedView(Protocol):
    """A map-style dataset that can be asked for many examples at once."""

    def __len__(self) -> int: ...
    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]: ...


class Draw(NamedTuple):
    """One example of a batch: its task, its place in the task's data, and the seed of its random transforms."""

    task: str
    place: int
    seed: int


class TaskMixture(Dataset):
    """Several tasks' data as one dataset that is indexed by `Draw`s."""

    def __init__(self, tasks: dict[str, SizedView]) -> None:
        self.tasks = tasks
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the data loader's wrapper when an epoch begins, also after a resume."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(next(iter(self.tasks.values())))

    def __getitems__(self, draws: list[Draw]) -> list[tuple[Draw, dict[str, Any]]]:
        examples: list[tuple[Draw, dict[str, Any]]] = []
        for task, data in self.tasks.items():
            mine = [draw for draw in draws if draw.task == task]
            examples += zip(mine, data.__getitems__([draw.place for draw in mine]), strict=True) if mine else []
        return examples


class TaskBatchSampler(Sampler[list[Draw]]):
    """Batches of `Draw`s, `batch_size` of each task; only full batches, and as many as every process can have equally.

    Args:
        mixture: whose `epoch` says which epoch is drawn.
        batch_size: examples of each task in a batch, for one process.
        seed: of the shuffling and of the examples' transforms.
        num_processes: consecutive batches go to consecutive processes.
    """

    drop_last = True

    def __init__(self, mixture: TaskMixture, batch_size: int, *, seed: int, num_processes: int = 1) -> None:
        for task, data in mixture.tasks.items():
            if len(data) < batch_size:
                raise ValueError(f"task {task!r} has {len(data)} examples, fewer than a batch of {batch_size}")
        self.mixture, self.seed = mixture, seed
        self.task_batch_size = batch_size
        # accelerate shares out only batches that have as many draws as the sampler says.
        self.batch_size = batch_size * len(mixture.tasks)
        self.length = max(len(mixture) // (batch_size * num_processes), 1) * num_processes

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[list[Draw]]:
        first = self.mixture.epoch * self.length
        shuffles = {
            task: _Shuffle(len(data), [self.seed, k]) for k, (task, data) in enumerate(self.mixture.tasks.items())
        }
        for batch in range(first, first + self.length):
            positions = range(batch * self.task_batch_size, (batch + 1) * self.task_batch_size)
            # numpy's seeding mixes the words of a seed well, so that neighbouring positions draw unrelated numbers.
            yield [
                Draw(task, shuffle[position], (self.seed << 48) + (k << 44) + position)
                for k, (task, shuffle) in enumerate(shuffles.items())
                for position in positions
            ]


class _Shuffle:
    """An endless sequence of permutations of `range(size)`, addressable by position."""

    def __init__(self, size: int, seed: list[int]) -> None:
        self.size, self.seed = size, seed
        self.round, self.order = -1, np.empty(0, dtype=np.int64)

    def __getitem__(self, position: int) -> int:
        round_, place = divmod(position, self.size)
        if round_ != self.round:
            self.round, self.order = round_, np.random.default_rng([*self.seed, round_]).permutation(self.size)
        return int(self.order[place])

"""Batches for several tasks at once: every training step takes one batch of each.

An epoch is one pass over the first task's data; the other tasks' data run in step, reshuffled whenever they have been
seen. What a batch holds is a function of the seed, the epoch and the batch's number, so that a resumed run sees what
an unbroken one would have seen.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler
from transformers import TrainingArguments
from transformers.trainer_utils import seed_worker

from ...configuration.errors import CorpusError


class SizedView(Protocol):
    """A map-style dataset that can be asked for many examples at once."""

    def __len__(self) -> int: ...
    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]: ...


class GroupedView:
    """Several views as one dataset.

    Args:
        groups: the views by name, such as one for each language.
        one_at_a_time: every training step takes its examples from a single group, each group as often as the others;
            else from all of them at once.
    """

    def __init__(self, groups: dict[str, SizedView], *, one_at_a_time: bool) -> None:
        self.groups = groups
        self.one_at_a_time = one_at_a_time
        self.sizes = [len(view) for view in groups.values()]
        self._ends = np.cumsum(self.sizes)

    def __len__(self) -> int:
        return sum(self.sizes)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        chosen = np.asarray(indices)
        group = np.searchsorted(self._ends, chosen, side="right")
        examples: list[dict[str, Any]] = [{}] * len(chosen)
        for number, view in enumerate(self.groups.values()):
            mine = np.flatnonzero(group == number)
            local = chosen[mine] - (self._ends[number] - self.sizes[number])
            for place, example in zip(mine, view.__getitems__(local.tolist()) if len(mine) else [], strict=True):
                examples[place] = example
        return examples


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
        batch_size: examples of each task in a batch, for one process; or a dict task -> examples.
        seed: of the shuffling and of the examples' transforms.
        num_processes: consecutive batches go to consecutive processes.
    """

    drop_last = True

    def __init__(
        self, mixture: TaskMixture, batch_size: int | Mapping[str, int], *, seed: int, num_processes: int = 1
    ) -> None:
        self.sizes = {task: batch_size if isinstance(batch_size, int) else batch_size[task] for task in mixture.tasks}
        for task, data in mixture.tasks.items():
            check_sizes({task: data}, self.sizes[task])
        self.mixture, self.seed, self.num_processes = mixture, seed, num_processes
        # accelerate shares out only batches that have as many draws as the sampler says.
        self.batch_size = sum(self.sizes.values())
        first = next(iter(self.sizes.values()))
        self.length = max(len(mixture) // (first * num_processes), 1) * num_processes

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[list[Draw]]:
        orders = {
            task: batch_order(data, self.sizes[task], [self.seed, k], self.num_processes)
            for k, (task, data) in enumerate(self.mixture.tasks.items())
        }
        first = self.mixture.epoch * self.length
        for batch in range(first, first + self.length):
            yield [
                draw
                for k, (task, order) in enumerate(orders.items())
                for draw in draws(task, k, order(batch), batch, self.seed)
            ]


def data_seed(args: TrainingArguments) -> int:
    """The seed of what the batches hold."""
    return args.data_seed if args.data_seed is not None else args.seed


def loader_options(args: TrainingArguments) -> dict[str, Any]:
    """What the arguments say of data loaders."""
    return {
        "pin_memory": args.dataloader_pin_memory and torch.accelerator.is_available(),
        "persistent_workers": args.dataloader_persistent_workers,
        "prefetch_factor": args.dataloader_prefetch_factor,
        "worker_init_fn": partial(seed_worker, num_workers=args.dataloader_num_workers, rank=args.process_index),
    }


def mixture_loader(
    sampler: TaskBatchSampler, collate: Callable[[list[Any]], Any], args: TrainingArguments
) -> DataLoader:
    """The batches of a sampler, collated."""
    # Workers that live on are seeded once. A resumed run would draw their seed again, from dropout's numbers.
    generator = torch.Generator().manual_seed(sampler.seed) if args.dataloader_persistent_workers else None
    return DataLoader(
        sampler.mixture,
        batch_sampler=sampler,
        collate_fn=collate,
        num_workers=args.dataloader_num_workers,
        generator=generator,
        **loader_options(args),
    )


def draws(task: str, number: int, places: Sequence[int], batch: int, seed: int) -> list[Draw]:
    """The draws of a batch, of the task of that number, each with a seed of its own."""
    # numpy's seeding mixes the words of a seed well, so that neighbouring positions draw unrelated numbers.
    first = (seed << 48) + (number << 44) + batch * len(places)
    return [Draw(task, place, first + position) for position, place in enumerate(places)]


def check_sizes(tasks: dict[str, SizedView], batch_size: int) -> None:
    """Raises a `CorpusError` that names the task whose data do not fill a batch."""
    for task, data in tasks.items():
        for name, part in data.groups.items() if _one_at_a_time(data) else [("", data)]:
            if len(part) < batch_size:
                which = f"task {task!r}" + (f" has in {name!r}" if name else " has")
                raise CorpusError(
                    f"{which} {len(part)} examples, fewer than a batch of {batch_size} "
                    "(per_device_train_batch_size): bring more data, or take smaller batches"
                )


def batch_order(data: SizedView, batch_size: int, seed: list[int], num_processes: int) -> Callable[[int], list[int]]:
    """The places of a batch's examples in a task's data, by the batch's number; consecutive batches go to consecutive
    processes."""
    if not _one_at_a_time(data):
        shuffle = _Shuffle(len(data), seed)
        return lambda batch: shuffle.batch(batch, batch_size)
    shuffles = [_Shuffle(size, [*seed, number]) for number, size in enumerate(data.sizes)]
    starts = np.cumsum([0, *data.sizes[:-1]])
    turns = _Turns(len(shuffles), seed)

    def order(batch: int) -> list[int]:
        # The batches of a step, one for each process, are all of one group.
        step, process = divmod(batch, num_processes)
        group, turn = turns[step]
        return [starts[group] + place for place in shuffles[group].batch(turn * num_processes + process, batch_size)]

    return order


def _one_at_a_time(data: SizedView) -> TypeGuard[GroupedView]:
    return isinstance(data, GroupedView) and data.one_at_a_time


class _Turns:
    """Which of several groups has its turn in a step, each as often as the others, and how often it had before."""

    def __init__(self, count: int, seed: list[int]) -> None:
        self.count, self.seed = count, seed
        self.groups = self.turns = np.empty(0, dtype=np.int64)

    def __getitem__(self, step: int) -> tuple[int, int]:
        if step >= len(self.groups):
            # The first of the groups that the seed draws, however many.
            self.groups = np.random.default_rng(self.seed).integers(self.count, size=2 * step + 1024)
            self.turns = np.empty_like(self.groups)
            for group in range(self.count):
                self.turns[self.groups == group] = np.arange(np.count_nonzero(self.groups == group))
        return int(self.groups[step]), int(self.turns[step])


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

    def batch(self, number: int, size: int) -> list[int]:
        """The `number`-th `size` of them."""
        return [self[position] for position in range(number * size, (number + 1) * size)]

"""Batches for several tasks: every training step takes one batch of each. An epoch is one pass over the data of the
first task; the other data are reshuffled after each pass. A batch depends only on the seed, the epoch and its index,
so a resumed run gets the same batches as an uninterrupted one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy as np
import torch.utils.data
from datasets import Dataset, IterableDataset
from torch.utils.data import Sampler, Subset

from ...utils.errors import CorpusError
from .views import CorpusView

_BATCH_BITS = 44  # of the seed of an example, which encode its place in the run


@dataclass(frozen=True)
class TaskData:
    """A corpus or a stream of one, and the `languages` of captions (by default those of the training arguments, or
    else all) or the language `pairs` of translations (by default all) that a task uses."""

    corpus: Dataset | IterableDataset
    languages: list[str] | None = None
    pairs: list[tuple[str, str]] | None = None


class SizedView(Protocol):
    """A map-style dataset that returns several examples at once."""

    def __len__(self) -> int: ...
    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]: ...


class GroupedView:
    """Several views by name as one dataset, such as one view for each language. With `one_at_a_time`, all examples of
    a training step, in all processes, come from one group; groups are chosen equally often or, with `by_size`, as
    often as they fill a step, so an epoch is one pass over all of them. Otherwise, a step mixes the groups."""

    def __init__(self, groups: dict[str, SizedView], *, one_at_a_time: bool, by_size: bool = False) -> None:
        self.groups = groups
        self.one_at_a_time, self.by_size = one_at_a_time, by_size
        self.sizes = [len(view) for view in groups.values()]
        self.starts = np.cumsum([0, *self.sizes[:-1]])

    def __len__(self) -> int:
        return sum(self.sizes)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        chosen = np.asarray(indices)
        groups = np.searchsorted(self.starts, chosen, side="right") - 1
        examples: list[dict[str, Any]] = [{}] * len(chosen)
        for group, (view, start) in enumerate(zip(self.groups.values(), self.starts, strict=True)):
            positions = np.flatnonzero(groups == group)
            own = view.__getitems__((chosen[positions] - start).tolist()) if len(positions) else []
            for position, example in zip(positions, own, strict=True):
                examples[position] = example
        return examples


class ExampleKey(NamedTuple):
    """The key of an example of a batch: its task, its index in the data, and the seed of its random transforms."""

    task: str
    position: int
    seed: int


class TaskMixture(torch.utils.data.Dataset):
    """The data of several tasks as one dataset, whose indices are `ExampleKey`s."""

    def __init__(self, tasks: dict[str, SizedView]) -> None:
        self.tasks = tasks
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch to sample next; accelerate's data loader calls it when an epoch begins or resumes."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(next(iter(self.tasks.values())))

    def __getitems__(self, keys: list[ExampleKey]) -> list[tuple[ExampleKey, dict[str, Any]]]:
        examples: list[tuple[ExampleKey, dict[str, Any]]] = []
        for task, data in self.tasks.items():
            own = [key for key in keys if key.task == task]
            examples += zip(own, data.__getitems__([key.position for key in own]), strict=True) if own else []
        return examples


class TaskBatchSampler(Sampler[list[ExampleKey]]):
    """Samples batches of `ExampleKey`s with `batch_size` examples of each task, or task -> number of examples. Drops
    incomplete batches. Consecutive batches go to consecutive processes, which get equally many."""

    drop_last = True

    def __init__(
        self, mixture: TaskMixture, batch_size: int | Mapping[str, int], *, seed: int, num_processes: int = 1
    ) -> None:
        self.sizes = batch_sizes(batch_size, mixture.tasks)
        self.mixture, self.seed, self.num_processes = mixture, seed, num_processes
        # accelerate distributes only batches whose number of examples equals the sampler's batch_size.
        self.batch_size = sum(self.sizes.values())
        first = next(iter(self.sizes.values()))
        self.length = max(len(mixture) // (first * num_processes), 1) * num_processes

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[list[ExampleKey]]:
        orders = {
            task: batch_order(data, self.sizes[task], [self.seed, k], self.num_processes)
            for k, (task, data) in enumerate(self.mixture.tasks.items())
        }
        first = self.mixture.epoch * self.length
        for batch in range(first, first + self.length):
            yield [
                key
                for k, (task, order) in enumerate(orders.items())
                for key in example_keys(task, k, order(batch), batch, self.seed)
            ]


def example_keys(task: str, task_index: int, positions: Sequence[int], batch: int, seed: int) -> list[ExampleKey]:
    """Returns the keys of a task's examples in one batch of a run, each with a different seed."""
    # The seeds are consecutive numbers. numpy mixes the bits of a seed, so their random numbers are unrelated.
    first = (seed << 48) + (task_index << _BATCH_BITS) + batch * len(positions)
    return [ExampleKey(task, position, first + k) for k, position in enumerate(positions)]


def seed_of_step(seeds: Sequence[int], num_processes: int) -> int:
    """Returns the seed of a task's first example in a step across all processes. Random choices for a whole batch use
    it, so they are the same in every process. `seeds` are the seeds of one process's examples, from `example_keys`."""
    batch = seeds[0] % (1 << _BATCH_BITS) // len(seeds)
    return seeds[0] - batch % num_processes * len(seeds)


def batch_sizes(batch_size: int | Mapping[str, int], tasks: Mapping[str, Any]) -> dict[str, int]:
    """Returns task -> number of examples in a batch. Data that are not a stream must fill one."""
    sizes = {task: batch_size if isinstance(batch_size, int) else batch_size[task] for task in tasks}
    for task, data in tasks.items():
        parts = data.groups.items() if _one_at_a_time(data) else [("", data)]
        for name, part in parts if hasattr(data, "__getitems__") else ():
            if len(part) < sizes[task]:
                raise CorpusError(
                    f"task {task!r} has {f'in {name!r} ' if name else ''}{len(part)} examples, fewer than a batch of "
                    f"{sizes[task]} (per_device_train_batch_size, or the task's own size): add data, or choose "
                    "smaller batches"
                )
    return sizes


# ---- Orders, each a function of the seed and an index ----

Order = Callable[[int], list[int]]  # index of a batch -> the positions of its examples in the data of a task
Schedule = Callable[[int], tuple[int, int]]  # step -> its group, and the number of earlier steps of that group


def batch_order(data: SizedView, batch_size: int, seed: list[int], num_processes: int) -> Order:
    if not _one_at_a_time(data):
        return _shuffled(len(data), batch_size, seed)
    by_group = [_shuffled(size, batch_size, [*seed, k]) for k, size in enumerate(data.sizes)]
    # A group of at least one batch that does not fill a step begins its next permutation within the step.
    steps = [max(size // (batch_size * num_processes), 1) for size in data.sizes]
    schedule = _rounds(steps, seed) if data.by_size else _uniform(len(by_group), seed)

    def order(batch: int) -> list[int]:
        step, within = divmod(batch, num_processes)
        group, earlier = schedule(step)
        return [data.starts[group] + position for position in by_group[group](earlier * num_processes + within)]

    return order


def _one_at_a_time(data: SizedView) -> TypeGuard[GroupedView]:
    return isinstance(data, GroupedView) and data.one_at_a_time


def _shuffled(size: int, batch_size: int, seed: list[int]) -> Order:
    """Cuts an endless sequence of permutations of `range(size)` into batches."""

    @lru_cache(maxsize=1)
    def permutation(number: int) -> np.ndarray:
        return np.random.default_rng([*seed, number]).permutation(size)

    def order(batch: int) -> list[int]:
        places = (divmod(place, size) for place in range(batch * batch_size, (batch + 1) * batch_size))
        return [int(permutation(number)[within]) for number, within in places]

    return order


def _uniform(count: int, seed: list[int]) -> Schedule:
    @lru_cache(maxsize=1)
    def sampled(size: int) -> tuple[np.ndarray, np.ndarray]:
        # A longer sequence from the same seed begins with the shorter one.
        return _counted(np.random.default_rng(seed).integers(count, size=size))

    def schedule(step: int) -> tuple[int, int]:
        groups, earlier = sampled(1024 << (step // 1024).bit_length())
        return int(groups[step]), int(earlier[step])

    return schedule


def _rounds(steps: Sequence[int], seed: list[int]) -> Schedule:
    """Plans steps in rounds: in each, a group has as many steps as it fills (`steps`), in a random order."""

    @lru_cache(maxsize=1)
    def planned(number: int) -> tuple[np.ndarray, np.ndarray]:
        every = np.repeat(np.arange(len(steps)), steps)
        return _counted(np.random.default_rng([*seed, number]).permutation(every))

    def schedule(step: int) -> tuple[int, int]:
        number, within = divmod(step, sum(steps))
        groups, earlier = planned(number)
        group = int(groups[within])
        return group, number * steps[group] + int(earlier[within])

    return schedule


def _counted(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns groups [N], and the number of earlier occurrences of each [N]."""
    earlier = np.empty_like(groups)
    earlier[np.argsort(groups, kind="stable")] = np.concatenate([*map(np.arange, np.bincount(groups))])
    return groups, earlier


def one_pair_at_a_time(*parts: tuple[CorpusView, SizedView]) -> GroupedView:
    """Joins data sets into one whose batches each have a single language pair, as in RC3 (Zhou et al. 2023, sections
    2.3.3 and 2.3.4); otherwise, the language would distinguish most negatives from the anchor. The paper does not
    state how often each pair is sampled: here in proportion to its batches. Each part is a view of translation pairs
    or triplets, and its examples: the view itself, or one with more columns, such as a `RegionView`."""
    pairs: dict[str, dict[str, SizedView]] = {}
    for index, (texts, examples) in enumerate(parts):
        for pair, own in texts.by_language_pair().items():
            pairs.setdefault(pair, {})[str(index)] = Subset(examples, own)  # type: ignore[arg-type]
    groups: dict[str, SizedView] = {
        pair: next(iter(own.values())) if len(own) == 1 else GroupedView(own, one_at_a_time=False)
        for pair, own in pairs.items()
    }
    return GroupedView(groups, one_at_a_time=True, by_size=True)


# ---- Precomputed features: those of frozen models, and the regions of images ----

# Model input -> the column of the features that replace it.
FEATURES_OF = {
    "image": "image_features",
    "text": "text_features",
    "text_a": "text_features",
    "text_b": "paired_text_features",
}


@dataclass(eq=False)
class FeatureView:
    """The examples of a view [N], each with the feature [n, …] at its index in `indices` [N] as column `name`."""

    view: SizedView
    name: str
    features: np.ndarray
    indices: np.ndarray

    def __len__(self) -> int:
        return len(self.view)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        examples = self.view.__getitems__(indices)
        chosen = self.features[self.indices[indices]]
        return [example | {self.name: feature} for example, feature in zip(examples, chosen, strict=True)]


@dataclass(eq=False)
class RegionView:
    """The examples of a view with the `regions` [R, region_size] of their images, found by `image_id`."""

    view: SizedView
    regions: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.view)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        examples = self.view.__getitems__(indices)
        return [example | {"regions": self.regions[example["image_id"]]} for example in examples]


def has_images(view: Any) -> bool:
    """Returns whether the examples of a view have images, not only features of them."""
    while isinstance(view, FeatureView):
        view = view.view
    return view.has_images if isinstance(view, CorpusView) else True

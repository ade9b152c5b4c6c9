"""Batches for several tasks: every training step takes one batch of each. An epoch is one pass over the data of the
first task; the other data are reshuffled after each pass. A batch depends only on the seed and its index in the run,
so a resumed run gets the same batches as an uninterrupted one."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy as np
import torch
import torch.utils.data as torch_data
from datasets import Dataset, IterableDataset
from datasets.distributed import split_dataset_by_node

from ...utils.errors import CorpusError, InputError
from .views import CorpusView, Example, StreamView

logger = logging.getLogger(__name__)

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
    def __getitems__(self, indices: list[int]) -> list[Example]: ...


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

    def __getitems__(self, indices: list[int]) -> list[Example]:
        chosen = np.asarray(indices)
        groups = np.searchsorted(self.starts, chosen, side="right") - 1
        examples: list[Example] = [{}] * len(chosen)
        for group, view in enumerate(self.groups.values()):
            if len(places := np.flatnonzero(groups == group)):
                own = view.__getitems__((chosen[places] - self.starts[group]).tolist())
                for place, example in zip(places, own, strict=True):
                    examples[place] = example
        return examples


class ExampleKey(NamedTuple):
    """The key of an example of a batch: its task, its index in the data, and the seed of its random transforms."""

    task: str
    position: int
    seed: int


@dataclass(eq=False)
class TaskMixture(torch_data.Dataset):
    """The data of several tasks as one dataset, whose indices are `ExampleKey`s."""

    tasks: dict[str, SizedView]
    epoch: int = 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch to sample next; accelerate's data loader calls it when an epoch begins or resumes."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(next(iter(self.tasks.values())))

    def __getitems__(self, keys: list[ExampleKey]) -> list[tuple[ExampleKey, Example]]:
        examples: list[tuple[ExampleKey, Example]] = []
        for task, data in self.tasks.items():
            own = [key for key in keys if key.task == task]
            examples += zip(own, data.__getitems__([key.position for key in own]), strict=True) if own else []
        return examples


class TaskBatchSampler(torch_data.Sampler[list[ExampleKey]]):
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
        first = self.mixture.epoch * self.length
        keys = _batches(self.mixture.tasks, self.sizes, self.seed, self.num_processes)
        return map(keys, range(first, first + self.length))


def batch_sizes(batch_size: int | Mapping[str, int], tasks: Mapping[str, Any]) -> dict[str, int]:
    """Returns task -> number of examples in a batch. Data that are not a stream must fill one."""
    sizes = {task: batch_size if isinstance(batch_size, int) else batch_size[task] for task in tasks}
    for task, data in tasks.items():
        parts = data.groups.items() if _one_at_a_time(data) else [("", data)]
        for name, part in parts if not isinstance(data, StreamView) else ():
            if len(part) < sizes[task]:
                raise CorpusError(
                    f"task {task!r} has {f'in {name!r} ' if name else ''}{len(part)} examples, fewer than a batch of "
                    f"{sizes[task]} (per_device_train_batch_size, or the task's own size): add data, or choose "
                    "smaller batches"
                )
    return sizes


def _batches(
    tasks: Mapping[str, Any], sizes: Mapping[str, int], seed: int, num_processes: int
) -> Callable[[int], list[ExampleKey]]:
    """Returns the function from the index of a batch in the run, over all processes, to the keys of its examples."""
    orders = {
        task: _order(data, sizes[task], [seed, k], num_processes) for k, (task, data) in enumerate(tasks.items())
    }

    def keys(batch: int) -> list[ExampleKey]:
        made: list[ExampleKey] = []
        for k, (task, order) in enumerate(orders.items()):
            # The seeds are consecutive numbers. numpy mixes the bits of a seed, so their random numbers are unrelated.
            first = (seed << 48) + (k << _BATCH_BITS) + batch * sizes[task]
            made += [ExampleKey(task, position, first + index) for index, position in enumerate(order(batch))]
        return made

    return keys


def seed_of_step(seeds: Sequence[int], num_processes: int) -> int:
    """Returns the seed of a task's first example in a step across all processes. Random choices for a whole batch use
    it, so they are the same in every process. `seeds` are the seeds of one process's examples."""
    batch = seeds[0] % (1 << _BATCH_BITS) // len(seeds)
    return seeds[0] - batch % num_processes * len(seeds)


# ---- Orders, each a function of the seed and an index ----

Order = Callable[[int], list[int]]  # index of a batch -> the positions of its examples in the data of a task
Schedule = Callable[[int], Sequence[int]]  # step -> its group, and the number of earlier steps of that group


def _order(data: Any, batch_size: int, seed: list[int], num_processes: int) -> Order:
    if isinstance(data, StreamView):  # which shuffles the rows as it reads them
        return lambda batch: list(range(batch * batch_size, (batch + 1) * batch_size))
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


def _one_at_a_time(data: Any) -> TypeGuard[GroupedView]:
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


def _uniform(groups: int, seed: list[int]) -> Schedule:
    @lru_cache(maxsize=1)
    def sampled(size: int) -> np.ndarray:
        # A longer sequence from the same seed begins with the shorter one.
        return _counted(np.random.default_rng(seed).integers(groups, size=size))

    return lambda step: sampled(1024 << (step // 1024).bit_length())[step].tolist()


def _rounds(steps: Sequence[int], seed: list[int]) -> Schedule:
    """Plans steps in rounds: in each, a group has as many steps as it fills (`steps`), in a random order."""

    @lru_cache(maxsize=1)
    def planned(number: int) -> np.ndarray:
        every = np.repeat(np.arange(len(steps)), steps)
        return _counted(np.random.default_rng([*seed, number]).permutation(every))

    def schedule(step: int) -> Sequence[int]:
        number, within = divmod(step, sum(steps))
        group, earlier = planned(number)[within].tolist()
        return group, number * steps[group] + earlier

    return schedule


def _counted(groups: np.ndarray) -> np.ndarray:
    """Returns each of the groups [N] with the number of its earlier occurrences, [N, 2]."""
    earlier = np.empty_like(groups)
    earlier[np.argsort(groups, kind="stable")] = np.concatenate([*map(np.arange, np.bincount(groups))])
    return np.stack([groups, earlier], axis=1)


def one_pair_at_a_time(*parts: tuple[CorpusView, SizedView]) -> GroupedView:
    """Joins data sets into one whose batches each have a single language pair, as in RC3 (Zhou et al. 2023, sections
    2.3.3 and 2.3.4); otherwise, the language would distinguish most negatives from the anchor. The paper does not
    state how often each pair is sampled: here in proportion to its batches. Each part is a view of translation pairs
    or triplets, and its examples: the view itself, or one with more columns, such as a `FeatureView`."""
    pairs: dict[str, dict[str, SizedView]] = {}
    for index, (texts, examples) in enumerate(parts):
        for pair, own in texts.by_language_pair().items():
            pairs.setdefault(pair, {})[str(index)] = torch_data.Subset(examples, own)  # type: ignore[arg-type]
    groups: dict[str, SizedView] = {
        pair: next(iter(own.values())) if len(own) == 1 else GroupedView(own, one_at_a_time=False)
        for pair, own in pairs.items()
    }
    return GroupedView(groups, one_at_a_time=True, by_size=True)


# ---- Streams, for corpora that are larger than the disk ----
# Shards are shuffled in every pass, and rows in blocks as they are read; every worker of every process reads separate
# shards, in endless passes. A batch comes with its worker's position after it, which the trainer saves once it has
# used the batch: a resumed run rereads one block.


def sample_of_stream(stream: IterableDataset, rows: int) -> Iterator[dict[str, Any]]:
    """Yields at most this many rows of a stream: about equally many from the beginning of each shard."""
    shards, left = stream.num_shards, rows
    for index in range(shards):
        share = -(-left // (shards - index))
        for row in islice(stream.shard(num_shards=shards, index=index), share):
            left -= 1
            yield row


@dataclass(eq=False)
class StreamMixture(torch_data.IterableDataset):
    """The data of several tasks, at least one of them a stream, as an endless stream of batches, with the arguments of
    `TaskBatchSampler`. `block_size` rows of a stream are shuffled together, and other data as a whole."""

    tasks: dict[str, SizedView | StreamView]
    batch_size: int | Mapping[str, int]
    _: KW_ONLY
    seed: int
    block_size: int
    process: int = 0
    num_processes: int = 1
    num_workers: int = 0

    def __post_init__(self) -> None:
        # Set by `StreamLoader`; the position is the number of used batches, and the states of each worker's streams.
        self.collate: Callable[[list[tuple[ExampleKey, Example]]], Any]
        self.position: dict[str, Any]
        batch_sizes(self.batch_size, self.tasks)  # raises an error if data do not fill a batch
        streams = {task: view for task, view in self.tasks.items() if isinstance(view, StreamView)}
        self.rows = {task: self._share(task, view) for task, view in streams.items()}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a resumed run must not change."""
        return {
            "tasks": list(self.tasks),
            "batch size": batch_sizes(self.batch_size, self.tasks),
            "seed": self.seed,
            "shuffle_buffer_size": self.block_size,
            "number of processes": self.num_processes,
            "dataloader_num_workers": self.num_workers,
        }

    def _share(self, task: str, view: StreamView) -> IterableDataset:
        shards, workers = view.rows.num_shards, max(self.num_workers, 1)
        if shards < workers:
            raise InputError(
                f"task {task!r}: a stream of {shards} shards cannot be shared by {workers} workers: save the data as "
                f"more files or load it as a Dataset, or set dataloader_num_workers to {shards} or less"
            )
        by_shards = shards >= self.num_processes * workers
        if not by_shards and self.process == 0:
            logger.warning(
                "task %r: %d shards are too few for %d processes with %d workers each: every process reads all of "
                "them and keeps one row of %d",
                *(task, shards, self.num_processes, workers, self.num_processes),
            )
        strategy = "shards" if by_shards else "examples"
        return split_dataset_by_node(view.rows, self.process, self.num_processes, strategy)

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any], Any] | None]:
        """Yields the worker, the state of its streams after the batch, and the batch."""
        info = torch_data.get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        consumed, states = self.position["batches"], self.position["workers"][worker] or {}
        readers: dict[str, _StreamReader] = {
            task: _StreamReader(self, task, [self.seed, k], worker, states.get(task))
            for k, task in enumerate(self.tasks)
            if task in self.rows
        }
        tasks: dict[str, Any] = {**self.tasks, **readers}
        examples = TaskMixture(tasks)
        keys = _batches(self.tasks, batch_sizes(self.batch_size, self.tasks), self.seed, self.num_processes)
        # The data loader asks its workers in turn. If a run resumes in the middle of a round, the first workers have
        # no batch left in it.
        if worker < consumed % workers:
            yield None
        for step in count(consumed + (worker - consumed) % workers, workers):
            batch = self.collate(examples.__getitems__(keys(step * self.num_processes + self.process)))
            yield worker, {task: reader.state for task, reader in readers.items()}, batch


class _StreamReader:
    """Reads a stream in endless passes, with its shards shuffled in every pass and its rows shuffled in blocks."""

    def __init__(
        self, mixture: StreamMixture, task: str, seed: list[int], worker: int, state: dict[str, Any] | None
    ) -> None:
        # Shards come in the same order in all processes and workers.
        self.shard_seed, self.row_seed = seed, [*seed, mixture.process, worker]
        self.blocks = self._blocks(mixture, task, state or {"pass": 0, "seen": 0, "rows": None})
        self._next_block()
        self.taken = state["taken"] if state else 0

    @property
    def state(self) -> dict[str, Any]:
        """The pass, the number of its examples before the block, the rows' state there, and the number taken since."""
        return self.position | {"taken": self.taken}

    def __getitems__(self, indices: Sequence[int]) -> list[Example]:
        """Returns the next examples, as many as there are indices."""
        examples: list[Example] = []
        while len(examples) < len(indices):
            if self.taken == len(self.order):
                self._next_block()
            chosen = self.order[self.taken : self.taken + len(indices) - len(examples)]
            examples += self.block.__getitems__(chosen)
            self.taken += len(chosen)
        return examples

    def _next_block(self) -> None:
        self.block: Any = None  # frees the memory of the old block before the next one is read
        self.position, self.block = next(self.blocks)
        rng = np.random.default_rng([*self.row_seed, self.position["pass"], self.position["seen"]])
        self.order, self.taken = rng.permutation(len(self.block)), 0

    def _blocks(
        self, mixture: StreamMixture, task: str, state: dict[str, Any]
    ) -> Iterator[tuple[dict[str, Any], CorpusView]]:
        """Yields the position of each block of rows, and its examples, from a position on."""
        view: Any = mixture.tasks[task]
        number, seen, start = state["pass"], state["seen"], state["rows"]
        while True:
            # A copy: the workers share the epoch set by set_epoch, but may be in different passes.
            rows = mixture.rows[task].with_format(None)
            rows.set_epoch(int(np.random.default_rng([*self.shard_seed, number]).integers(1, 2**31)))
            rows.load_state_dict(start)
            iterator = iter(rows)
            while block := list(islice(iterator, mixture.block_size)):
                following, examples = rows.state_dict(), view.examples_of(block)
                size = len(examples)
                yield {"pass": number, "seen": seen, "rows": start}, examples
                del block, examples
                seen, start = seen + size, following
            if not seen:
                raise CorpusError(f"task {task!r}: a pass over the stream gave no example in the requested languages")
            number, seen, start = number + 1, 0, None


class StreamLoader:
    """A data loader over a `StreamMixture` whose position can be saved and loaded. `length` is the number of batches
    in the whole run, which is one epoch; `options` are passed to `torch.utils.data.DataLoader`."""

    def __init__(self, mixture: StreamMixture, collate: Callable[[Any], Any], *, length: int, **options: Any) -> None:
        self.mixture, self.length = mixture, length
        mixture.collate = collate
        mixture.position = {"batches": 0, "workers": [None] * max(mixture.num_workers, 1)}
        # Without a separate generator, the loader would take random numbers from the generator that dropout uses.
        self.loader = torch_data.DataLoader(
            mixture,
            batch_size=None,
            collate_fn=_as_made,
            num_workers=mixture.num_workers,
            generator=torch.Generator(),
            **options,
        )

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        position = self.mixture.position
        for worker, states, batch in filter(None, self.loader):
            position["workers"][worker] = states
            position["batches"] += 1
            yield batch

    def save(self, folder: str | Path) -> None:
        """Writes the position of this process's streams after the last used batch."""
        state = self.mixture.position | {"settings": self.mixture.settings}
        self._file(folder).write_text(json.dumps(state), encoding="utf-8")

    def load(self, folder: str | Path) -> None:
        """Reads a saved position, from which the next iteration resumes."""
        state = json.loads(self._file(folder).read_text(encoding="utf-8"))
        for name, now in self.mixture.settings.items():
            if (then := state["settings"][name]) != now:
                raise InputError(
                    f"{folder}: the stream cannot be resumed from there: {name} was {then!r} and is {now!r}"
                )
        self.mixture.position = state

    def _file(self, folder: str | Path) -> Path:
        return Path(folder) / f"stream_{self.mixture.process}.json"


def _as_made(batch: Any) -> Any:
    return batch


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
    """The examples of a view [N], each with a feature as column `name`: the one at its index in `indices` [N] or, by
    default, at its `image_id`."""

    view: SizedView
    name: str
    features: np.ndarray | Mapping[str, np.ndarray]
    indices: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.view)

    def __getitems__(self, indices: list[int]) -> list[Example]:
        examples: Any = self.view.__getitems__(indices)
        keys = [each["image_id"] for each in examples] if self.indices is None else self.indices[indices]
        return [each | {self.name: self.features[key]} for each, key in zip(examples, keys, strict=True)]


def has_images(view: Any) -> bool:
    """Returns whether the examples of a view have images, not only features of them."""
    while isinstance(view, FeatureView):
        view = view.view
    return view.has_images if isinstance(view, CorpusView) else True

"""Batches for several tasks: every training step takes one batch of each. An epoch is one pass over the data of the
first task; the other data are reshuffled after each pass. A batch depends only on the seed and its index in the run,
so a resumed run gets the same batches as an uninterrupted one."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, lru_cache
from itertools import count, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.utils.data as torch_data
from datasets import Dataset, IterableDataset
from datasets.distributed import split_dataset_by_node
from torch import Tensor

from ...utils.errors import CorpusError, InputError
from .views import CorpusView, Example, StreamView

logger = logging.getLogger(__name__)

_BATCH_BITS = 44  # of the seed of an example, which encode its place in the run

# (examples, seeds of their random transforms) -> a batch.
Collator = Callable[[list[Example], list[int]], dict[str, Tensor]]


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


# A batch before it is read: task -> indices of its examples in the data, and seeds of their random transforms.
Draw = dict[str, tuple[list[int], list[int]]]


@dataclass(eq=False)
class TaskMixture(torch_data.Dataset):
    """The data of several tasks, each a `SizedView` or a `StreamView`, as one dataset that maps a `Draw` to its
    batch of each task."""

    tasks: dict[str, Any]
    collators: dict[str, Collator]
    epoch: int = 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch to sample next; accelerate's data loader calls it when an epoch begins or resumes."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(next(iter(self.tasks.values())))

    def __getitem__(self, draw: Draw) -> dict[str, dict[str, Tensor]]:
        return {
            task: self.collators[task](self.tasks[task].__getitems__(indices), seeds)
            for task, (indices, seeds) in draw.items()
        }


class TaskSampler(torch_data.Sampler[Draw]):
    """Samples batches with `batch_size` examples of each task, or task -> number of examples. Drops incomplete
    batches. Consecutive batches go to consecutive processes, which get equally many."""

    def __init__(
        self, mixture: TaskMixture, batch_size: int | Mapping[str, int], *, seed: int, num_processes: int = 1
    ) -> None:
        self.mixture, self.seed, self.num_processes = mixture, seed, num_processes
        self.sizes = {task: batch_size if isinstance(batch_size, int) else batch_size[task] for task in mixture.tasks}
        for task, data in mixture.tasks.items():
            by_group = isinstance(data, GroupedView) and data.one_at_a_time
            parts = data.groups.items() if by_group else [("", data)]
            for name, part in parts if not isinstance(data, StreamView) else ():
                if len(part) < self.sizes[task]:
                    raise CorpusError(
                        f"task {task!r} has {f'in {name!r} ' if name else ''}{len(part)} examples, fewer than a batch "
                        f"of {self.sizes[task]} (per_device_train_batch_size, or the task's own size): add data, or "
                        "choose smaller batches"
                    )

    def __len__(self) -> int:
        step = next(iter(self.sizes.values())) * self.num_processes
        return max(len(self.mixture) // step, 1) * self.num_processes

    def __iter__(self) -> Iterator[Draw]:
        first = self.mixture.epoch * len(self)
        return map(self.draw, range(first, first + len(self)))

    def draw(self, batch: int) -> Draw:
        """Draws a batch by its index in the run, over all processes."""
        drawn: Draw = {}
        for k, (task, order) in enumerate(self._orders.items()):
            # The seeds are consecutive numbers. numpy mixes the bits of a seed, so their random numbers are unrelated.
            first = (self.seed << 48) + (k << _BATCH_BITS) + batch * self.sizes[task]
            drawn[task] = order(batch), list(range(first, first + self.sizes[task]))
        return drawn

    @cached_property  # made where it is used: a spawned worker gets the sampler without these functions
    def _orders(self) -> dict[str, "Order"]:
        return {
            task: _order(data, self.sizes[task], [self.seed, k], self.num_processes)
            for k, (task, data) in enumerate(self.mixture.tasks.items())
        }


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
    if not (isinstance(data, GroupedView) and data.one_at_a_time):
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
    whole: Any = GroupedView({str(k): examples for k, (_, examples) in enumerate(parts)}, one_at_a_time=False)
    pairs: dict[str, list[np.ndarray]] = {}
    for (texts, _), start in zip(parts, whole.starts, strict=True):
        for pair, own in texts.by_language_pair().items():
            pairs.setdefault(pair, []).append(start + own)
    joined: dict[str, Any] = {pair: np.concatenate(own) for pair, own in pairs.items()}
    groups: Any = {pair: torch_data.Subset(whole, own) for pair, own in joined.items()}
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
class StreamBatches(torch_data.IterableDataset):
    """Endless batches of one process, from a mixture that has a stream. `block_size` rows of a stream are
    shuffled together, and other data as a whole."""

    sampler: TaskSampler
    _: KW_ONLY
    block_size: int
    process: int = 0
    num_workers: int = 0

    def __post_init__(self) -> None:
        # The number of used batches, and the states of each worker's streams after them.
        self.position: dict[str, Any] = {"batches": 0, "workers": [None] * max(self.num_workers, 1)}
        streams = {task: data for task, data in self.sampler.mixture.tasks.items() if isinstance(data, StreamView)}
        self.rows = {task: self._share(task, view) for task, view in streams.items()}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a resumed run must not change."""
        return {
            "tasks": list(self.sampler.sizes),
            "batch size": self.sampler.sizes,
            "seed": self.sampler.seed,
            "shuffle_buffer_size": self.block_size,
            "number of processes": self.sampler.num_processes,
            "dataloader_num_workers": self.num_workers,
        }

    def _share(self, task: str, view: StreamView) -> IterableDataset:
        shards, workers, processes = view.rows.num_shards, max(self.num_workers, 1), self.sampler.num_processes
        if shards < workers:
            raise InputError(
                f"task {task!r}: a stream of {shards} shards cannot be shared by {workers} workers: save the data as "
                f"more files or load it as a Dataset, or set dataloader_num_workers to {shards} or less"
            )
        by_shards = shards >= processes * workers
        if not by_shards and self.process == 0:
            logger.warning(
                "task %r: %d shards are too few for %d processes with %d workers each: every process reads all of "
                "them and keeps one row of %d",
                *(task, shards, processes, workers, processes),
            )
        strategy = "shards" if by_shards else "examples"
        return split_dataset_by_node(view.rows, self.process, processes, strategy)

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any], Any] | None]:
        """Yields the worker, the state of its streams after the batch, and the batch."""
        info = torch_data.get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        consumed, states = self.position["batches"], self.position["workers"][worker] or {}
        sampler, mixture = self.sampler, self.sampler.mixture
        readers = {task: _StreamReader(self, task, worker, states.get(task)) for task in self.rows}
        drawn_from = TaskMixture({**mixture.tasks, **readers}, mixture.collators)
        # The data loader asks its workers in turn. If a run resumes in the middle of a round, the first workers have
        # no batch left in it.
        if worker < consumed % workers:
            yield None
        for step in count(consumed + (worker - consumed) % workers, workers):
            batch = drawn_from[sampler.draw(step * sampler.num_processes + self.process)]
            yield worker, {task: reader.state for task, reader in readers.items()}, batch


class _StreamReader:
    """Reads a stream in endless passes, with its shards shuffled in every pass and its rows shuffled in blocks.
    `state` is the pass, the number of its examples before the block, the rows' state there, and the number taken
    since."""

    def __init__(self, batches: StreamBatches, task: str, worker: int, state: dict[str, Any] | None) -> None:
        self.state = state or {"pass": 0, "seen": 0, "rows": None, "taken": 0}
        self._parts, self._wanted = self._read(batches, task, worker), 0

    def __getitems__(self, indices: Sequence[int]) -> list[Example]:
        """Returns the next examples, as many as there are indices."""
        examples: list[Example] = []
        while len(examples) < len(indices):
            self._wanted = len(indices) - len(examples)
            examples += next(self._parts)
        return examples

    def _read(self, batches: StreamBatches, task: str, worker: int) -> Iterator[list[Example]]:
        """Yields examples that are read together: as many as are wanted, or as the block still has."""
        view: StreamView = batches.sampler.mixture.tasks[task]
        # Shards come in the same order in all processes and workers.
        shard_seed = [batches.sampler.seed, list(batches.sampler.sizes).index(task)]
        row_seed = [*shard_seed, batches.process, worker]
        number, seen, start, taken = (self.state[name] for name in ("pass", "seen", "rows", "taken"))
        while True:
            # A copy: the workers share the epoch set by set_epoch, but may be in different passes.
            rows: Any = batches.rows[task].with_format(None)
            rows.set_epoch(int(np.random.default_rng([*shard_seed, number]).integers(1, 2**31)))
            rows.load_state_dict(start)
            unread = iter(rows)
            while block := list(islice(unread, batches.block_size)):
                following, examples = rows.state_dict(), view.examples_of(block)
                size = len(examples)
                order = np.random.default_rng([*row_seed, number, seen]).permutation(size)
                while taken < size:
                    chosen = order[taken : taken + self._wanted].tolist()
                    taken += len(chosen)
                    self.state = {"pass": number, "seen": seen, "rows": start, "taken": taken}
                    yield examples.__getitems__(chosen)
                del block, examples  # frees their memory before the next block is read
                seen, start, taken = seen + size, following, 0
            if not seen:
                raise CorpusError(f"task {task!r}: a pass over the stream gave no example in the requested languages")
            number, seen, start = number + 1, 0, None


class StreamLoader:
    """A data loader over `StreamBatches` whose position can be saved and loaded. `length` is the number of batches in
    the whole run, which is one epoch; `options` are passed to `torch.utils.data.DataLoader`."""

    def __init__(self, batches: StreamBatches, *, length: int, **options: Any) -> None:
        self.batches, self.length = batches, length
        # Without a separate generator, the loader would take random numbers from the generator that dropout uses.
        self.loader = torch_data.DataLoader(
            batches, batch_size=None, num_workers=batches.num_workers, generator=torch.Generator(), **options
        )

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        position = self.batches.position
        for worker, states, batch in filter(None, self.loader):
            position["workers"][worker] = states
            position["batches"] += 1
            yield batch

    def save(self, folder: str | Path) -> None:
        """Writes the position of this process's streams after the last used batch."""
        state = self.batches.position | {"settings": self.batches.settings}
        self._file(folder).write_text(json.dumps(state), encoding="utf-8")

    def load(self, folder: str | Path) -> None:
        """Reads a saved position, from which the next iteration resumes."""
        state = json.loads(self._file(folder).read_text(encoding="utf-8"))
        for name, now in self.batches.settings.items():
            if (then := state["settings"][name]) != now:
                raise InputError(
                    f"{folder}: the stream cannot be resumed from there: {name} was {then!r} and is {now!r}"
                )
        self.batches.position = state

    def _file(self, folder: str | Path) -> Path:
        return Path(folder) / f"stream_{self.batches.process}.json"


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

"""Batches from streams, for corpora that are larger than the disk. Shards are shuffled in every pass, and rows in
blocks as they are read; every worker of every process reads separate shards, in endless passes. A batch comes with its
worker's position after it, which the trainer saves once it has used the batch: a resumed run rereads one block and
then gets the same batches as an uninterrupted run."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import IterableDataset as Stream
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from ...utils.errors import CorpusError, InputError
from .mixture import ExampleKey, SizedView, batch_order, batch_sizes, example_keys
from .views import CorpusView, Example, StreamView

logger = logging.getLogger(__name__)


def sample_of_stream(stream: Stream, rows: int) -> Iterator[dict[str, Any]]:
    """Yields at most this many rows of a stream: about equally many from the beginning of each shard."""
    shards, left = stream.num_shards, rows
    for index in range(shards):
        share = -(-left // (shards - index))
        for row in islice(stream.shard(num_shards=shards, index=index), share):
            left -= 1
            yield row


class StreamBatch(NamedTuple):
    """A batch, the worker that made it, and the position of each task's stream in that worker after the batch. The
    batch has the keys of the examples with the examples; after collation, the inputs of the model."""

    worker: int
    states: dict[str, dict[str, Any]]
    batch: Any


class StreamMixture(IterableDataset):
    """The data of several tasks, at least one of them a stream, as an endless stream of batches, with the arguments of
    `TaskBatchSampler`. `block_size` rows of a stream are shuffled together, and other data as a whole."""

    def __init__(
        self,
        tasks: dict[str, SizedView | StreamView],
        batch_size: int | Mapping[str, int],
        *,
        seed: int,
        block_size: int,
        process: int = 0,
        num_processes: int = 1,
        num_workers: int = 0,
    ) -> None:
        self.tasks, self.batch_size, self.seed, self.block_size = tasks, batch_size, seed, block_size
        self.process, self.num_processes, self.num_workers = process, num_processes, num_workers
        self.start: dict[str, Any] = {"batches": 0, "workers": [None] * max(num_workers, 1)}
        batch_sizes(batch_size, tasks)  # raises an error if data do not fill a batch
        self.rows = {task: self._share(task, view) for task, view in tasks.items() if isinstance(view, StreamView)}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a resumed run must not change."""
        sizes = batch_sizes(self.batch_size, self.tasks)
        same = set(sizes.values())
        return {
            "tasks": list(self.tasks),
            "batch size": same.pop() if len(same) == 1 else sizes,
            "seed": self.seed,
            "shuffle_buffer_size": self.block_size,
            "number of processes": self.num_processes,
            "dataloader_num_workers": self.num_workers,
        }

    def _share(self, task: str, view: StreamView) -> Stream:
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

    def __iter__(self) -> Iterator[StreamBatch | None]:
        """Yields the batches of one worker; `StreamBatch.batch` is a list of (key, example)."""
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        sizes, states = batch_sizes(self.batch_size, self.tasks), self.start["workers"][worker] or {}
        readers, orders = {}, {}
        for k, (task, view) in enumerate(self.tasks.items()):
            if isinstance(view, StreamView):
                readers[task] = _StreamReader(self, task, [self.seed, k], worker, states.get(task))
            else:
                orders[task] = batch_order(view, sizes[task], [self.seed, k], self.num_processes)
        # The data loader asks its workers in turn. If a run resumes in the middle of a round, the first workers have
        # no batch left in it.
        consumed = self.start["batches"]
        if worker < consumed % workers:
            yield None
        for step in count(consumed + (worker - consumed) % workers, workers):
            batch = step * self.num_processes + self.process  # counted over all processes
            sampled: list[tuple[ExampleKey, Example]] = []
            for k, (task, view) in enumerate(self.tasks.items()):
                if isinstance(view, StreamView):
                    positions = list(range(batch * sizes[task], (batch + 1) * sizes[task]))
                    examples = readers[task].take(sizes[task])
                else:
                    positions = orders[task](batch)
                    examples = view.__getitems__(positions)
                sampled += zip(example_keys(task, k, positions, batch, self.seed), examples, strict=True)
            yield StreamBatch(worker, {task: reader.state for task, reader in readers.items()}, sampled)


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

    def take(self, count: int) -> list[Example]:
        examples: list[Example] = []
        while len(examples) < count:
            if self.taken == len(self.order):
                self._next_block()
            positions = self.order[self.taken : self.taken + count - len(examples)]
            examples += self.block.__getitems__(positions.tolist())
            self.taken += len(positions)
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
        # Without a separate generator, the loader would take random numbers from the generator that dropout uses.
        self.loader = DataLoader(
            mixture,
            batch_size=None,
            collate_fn=partial(_collated, collate=collate),
            num_workers=mixture.num_workers,
            generator=torch.Generator(),
            **options,
        )
        self.batches = 0
        self.workers: list[Any] = [None] * max(mixture.num_workers, 1)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        self.mixture.start = {"batches": self.batches, "workers": self.workers}
        for loaded in self.loader:
            if loaded is not None:
                self.workers[loaded.worker] = loaded.states
                self.batches += 1
                yield loaded.batch

    def save(self, folder: str | Path) -> None:
        """Writes the position of this process's streams after the last used batch."""
        state = {"settings": self.mixture.settings, "batches": self.batches, "workers": self.workers}
        self._file(folder).write_text(json.dumps(state), encoding="utf-8")

    def load(self, folder: str | Path) -> None:
        """Reads a saved position, from which the next iteration resumes."""
        state = json.loads(self._file(folder).read_text(encoding="utf-8"))
        for name, now in self.mixture.settings.items():
            if (then := state["settings"][name]) != now:
                raise InputError(
                    f"{folder}: the stream cannot be resumed from there: {name} was {then!r} and is {now!r}"
                )
        self.batches, self.workers = state["batches"], state["workers"]

    def _file(self, folder: str | Path) -> Path:
        return Path(folder) / f"stream_{self.mixture.process}.json"


def _collated(loaded: StreamBatch | None, *, collate: Callable[[Any], Any]) -> StreamBatch | None:
    return loaded and loaded._replace(batch=collate(loaded.batch))

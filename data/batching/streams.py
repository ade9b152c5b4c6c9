"""Batches from streams: corpora that are read in passing, because they are larger than the disk.

A stream has no order that could be drawn from, so it is shuffled as it comes: the shards anew in every pass, and the
rows in blocks. Every process reads shards of its own, and of these every worker of its data loader, each without end.

Where a reader stands is a small dictionary: its pass, the state of the `datasets.IterableDataset` where its block
began, and how many of the block's examples it has given. Every batch brings along where its worker stood after it, and
the trainer keeps what came with the batches that it has consumed. A run that goes on from there reads one block again
and then sees what an unbroken one would have seen.
"""

import json
import logging
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import IterableDataset as Stream
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ...configuration.errors import CorpusError, TrainingSetupError
from .mixture import Draw, SizedView, batch_order, check_sizes, draws
from .views import Example, StreamView

logger = logging.getLogger(__name__)


class StreamBatch(NamedTuple):
    """A batch, and where each task's stream stood after it in the worker that made it."""

    worker: int
    states: dict[str, dict[str, Any]]
    batch: Any


class StreamMixture(IterableDataset):
    """Several tasks' data, streams among them, as an endless stream of batches, `batch_size` of each task.

    Tasks whose data are at hand are shuffled as a whole, as in `TaskBatchSampler`.

    Args:
        tasks: views by task.
        batch_size: examples of each task in a batch, for one process.
        seed: of the shuffling and of the examples' transforms.
        block_size: rows of a stream that are read at a time and shuffled.
        process, num_processes: this one of so many.
        num_workers: of the data loader.

    Raises:
        TrainingSetupError: when a stream has fewer shards than a process has workers.
    """

    def __init__(
        self,
        tasks: dict[str, SizedView | StreamView],
        batch_size: int,
        *,
        seed: int,
        block_size: int,
        process: int = 0,
        num_processes: int = 1,
        num_workers: int = 0,
    ) -> None:
        self.tasks, self.batch_size, self.seed, self.block_size = tasks, batch_size, seed, block_size
        self.process, self.num_processes, self.num_workers = process, num_processes, num_workers
        self.streams = {task: data for task, data in tasks.items() if isinstance(data, StreamView)}
        self.start: dict[str, Any] = {"batches": 0, "workers": [None] * max(num_workers, 1)}
        check_sizes({task: data for task, data in tasks.items() if not isinstance(data, StreamView)}, batch_size)
        self.rows = {task: self._share(task, view) for task, view in self.streams.items()}

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same for a run that goes on where another stopped."""
        return {
            "tasks": list(self.tasks),
            "batch size": self.batch_size,
            "seed": self.seed,
            "shuffle_buffer_size": self.block_size,
            "number of processes": self.num_processes,
            "dataloader_num_workers": self.num_workers,
        }

    def _share(self, task: str, view: StreamView) -> Stream:
        """The rows of a stream that this process is to read."""
        shards, workers = view.rows.num_shards, max(self.num_workers, 1)
        if shards < workers:
            raise TrainingSetupError(
                f"task {task!r}: a stream of {shards} shards cannot be shared by {workers} workers: bring the data as "
                f"more files or as a Dataset, or set dataloader_num_workers to {shards} or less"
            )
        by_shards = shards >= self.num_processes * workers
        if not by_shards and self.process == 0:
            logger.warning(
                "task %r: %d shards are too few for %d processes with %d workers each: every process reads them all "
                "and keeps one row of %d",
                *(task, shards, self.num_processes, workers, self.num_processes),
            )
        strategy = "shards" if by_shards else "examples"
        return split_dataset_by_node(view.rows, self.process, self.num_processes, strategy)

    def __iter__(self) -> Iterator[StreamBatch | None]:
        """What one worker has to give: batches, each `StreamBatch.batch` a list of (draw, example)."""
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        states = self.start["workers"][worker] or {}
        readers = {
            task: _Reader(
                view,
                self.rows[task],
                name=f"task {task!r}",
                block_size=self.block_size,
                shard_seed=[self.seed, number],
                row_seed=[self.seed, number, self.process, worker],
                state=states.get(task),
            )
            for number, (task, view) in enumerate(self.tasks.items())
            if isinstance(view, StreamView)
        }
        orders = {
            task: batch_order(view, self.batch_size, [self.seed, number], self.num_processes)
            for number, (task, view) in enumerate(self.tasks.items())
            if not isinstance(view, StreamView)
        }
        # The workers take turns. Where a run goes on in the middle of a round, the first of them have had theirs.
        consumed = self.start["batches"]
        if worker < consumed % workers:
            yield None
        for step in count(consumed + (worker - consumed) % workers, workers):
            batch = self._batch(step * self.num_processes + self.process, readers, orders)
            yield StreamBatch(worker, {task: reader.state_dict() for task, reader in readers.items()}, batch)

    def _batch(
        self, batch: int, readers: dict[str, "_Reader"], orders: dict[str, Callable[[int], list[int]]]
    ) -> list[tuple[Draw, Example]]:
        """The batch of that number over all processes."""
        drawn: list[tuple[Draw, Example]] = []
        for number, (task, data) in enumerate(self.tasks.items()):
            if isinstance(data, StreamView):
                places: list[int] = list(range(batch * self.batch_size, (batch + 1) * self.batch_size))
                examples = readers[task].take(self.batch_size)
            else:
                places = orders[task](batch)
                examples = data.__getitems__(places)
            drawn += zip(draws(task, number, places, batch, self.seed), examples, strict=True)
        return drawn


class _Reader:
    """The examples of a stream without end, its shards shuffled in every pass and its rows in blocks.

    Args:
        view: makes examples of rows.
        rows: of the stream, those of this process.
        name: how errors call the data.
        block_size: rows of a block.
        shard_seed: of the order of the shards, the same in all processes and workers.
        row_seed: of the order within a block.
        state: of the reader to go on from.
    """

    def __init__(
        self,
        view: StreamView,
        rows: Stream,
        *,
        name: str,
        block_size: int,
        shard_seed: list[int],
        row_seed: list[int],
        state: dict[str, Any] | None = None,
    ) -> None:
        self.view, self.all_rows, self.name, self.block_size = view, rows, name, block_size
        self.shard_seed, self.row_seed = shard_seed, row_seed
        self.block: Any = None
        self.order = np.empty(0, dtype=np.int64)
        at = state or {"pass": 0, "seen": 0, "taken": 0, "rows": None}
        self.number, self.seen, self.taken = at["pass"], at["seen"], at["taken"]
        self._begin(at["rows"])
        if state is not None:
            self._shuffle(self._read())

    def state_dict(self) -> dict[str, Any]:
        """The number of the pass, examples of it before the block, those taken from the block, where its rows
        began."""
        return {"pass": self.number, "seen": self.seen, "taken": self.taken, "rows": self.block_start}

    def take(self, count: int) -> list[Example]:
        """The next `count` examples."""
        examples: list[Example] = []
        while len(examples) < count:
            if self.taken == len(self.order):
                self._next_block()
            places = self.order[self.taken : self.taken + count - len(examples)]
            examples += self.block.__getitems__(places.tolist())
            self.taken += len(places)
        return examples

    def _next_block(self) -> None:
        self.seen += len(self.order)
        self.block, self.taken = None, 0  # no two blocks are held at a time
        while not (rows := self._read()):
            if not self.seen:
                raise CorpusError(f"{self.name}: a pass over the stream gave no example in the languages asked for")
            self.number, self.seen = self.number + 1, 0
            self._begin(None)
        self._shuffle(rows)

    def _begin(self, state: dict[str, Any] | None) -> None:
        """Opens the stream where `state` says, or at the beginning of a pass."""
        # A copy: data loader workers share the number that set_epoch sets, and they are not all in the same pass.
        self.rows = self.all_rows.with_format(None)
        self.rows.set_epoch(int(np.random.default_rng([*self.shard_seed, self.number]).integers(1, 2**31)))
        self.rows.load_state_dict(state)
        self.iterator, self.next_start = iter(self.rows), state

    def _read(self) -> list[dict[str, Any]]:
        """The rows of the next block; none at the end of a pass."""
        self.block_start = self.next_start
        rows = list(islice(self.iterator, self.block_size))
        self.next_start = self.rows.state_dict()
        return rows

    def _shuffle(self, rows: list[dict[str, Any]]) -> None:
        self.block = self.view.examples_of(rows)
        self.order = np.random.default_rng([*self.row_seed, self.number, self.seen]).permutation(len(self.block))


class StreamLoader:
    """A data loader over a `StreamMixture` that knows where it stands.

    Args:
        mixture: gives the batches.
        collate: makes a batch of a list of (draw, example).
        length: batches of the whole run, which is one epoch.
        options: of `torch.utils.data.DataLoader`.
    """

    def __init__(self, mixture: StreamMixture, collate: Callable[[Any], Any], *, length: int, **options: Any) -> None:
        self.mixture, self.length = mixture, length
        # With a generator of its own, the loader takes no random number from the model's dropout.
        self.loader = DataLoader(
            mixture,
            batch_size=None,
            collate_fn=_Collator(collate),
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
        for made in self.loader:
            if made is not None:
                self.workers[made.worker] = made.states
                self.batches += 1
                yield made.batch

    def save(self, folder: str | Path) -> None:
        """Writes where the stream of this process stands after the batches that were taken."""
        state = {"settings": self.mixture.settings, "batches": self.batches, "workers": self.workers}
        self._file(folder).write_text(json.dumps(state), encoding="utf-8")

    def load(self, folder: str | Path) -> None:
        """Makes the next iteration go on from what was saved.

        Raises:
            FileNotFoundError: when nothing was.
            TrainingSetupError: when the batches would not be those of an unbroken run.
        """
        state = json.loads(self._file(folder).read_text(encoding="utf-8"))
        for name, now in self.mixture.settings.items():
            if (then := state["settings"][name]) != now:
                raise TrainingSetupError(
                    f"{folder}: the stream cannot go on from there: {name} was {then!r} and is {now!r}"
                )
        self.batches, self.workers = state["batches"], state["workers"]

    def _file(self, folder: str | Path) -> Path:
        return Path(folder) / f"stream_{self.mixture.process}.json"


class _Collator:
    """Collates the batch in a `StreamBatch`."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, made: StreamBatch | None) -> StreamBatch | None:
        return made and made._replace(batch=self.collate(made.batch))


class ShareOfSteps(TrainerCallback):
    """Logs the share of `max_steps` as the epoch, also after a resume: nobody knows how long a stream is."""

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        state.epoch = state.global_step / state.max_steps

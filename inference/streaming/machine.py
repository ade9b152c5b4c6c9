"""Embeds a source with the processes of one machine: one, or those that torchrun or accelerate has started."""

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

from ...configuration.output_lock import locked
from ..embedder import Embedder, progress_bar
from .counts import Counts
from .job import EmbeddingJob, info_of
from .output import begin, finish, missing_shards
from .shards import InputShard
from .worker import ShardWorker

# Processes wait for each other at the end, and the shards of one may take much longer than those of another.
_PATIENCE = timedelta(days=30)


def distributed_state() -> PartialState | None:
    """The group of processes that this one belongs to, as torchrun describes it; None for a process on its own."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        return None
    return PartialState(cpu=not torch.accelerator.is_available(), timeout=_PATIENCE)


def embed_source(
    embedder: Embedder, job: EmbeddingJob, *, model: str, show_progress: bool | None = None
) -> Counts | None:
    """Embeds all shards of a source that the output folder lacks.

    Under torchrun, every process embeds its share of them, with a model on its own device (`distributed_state`).

    Args:
        embedder: the model.
        job: what to embed, and where to.
        model: the folder or repository of the model, for `embeddings.json`.
        show_progress: whether to show a progress bar; by default on a terminal, for long jobs.

    Returns:
        The counts of all shards in the folder, those of earlier runs included; None in all processes but the first.

    Raises:
        ChangedRunError: for a folder of another model, or of another source or settings.
        SaveError: if another process writes to the folder, or it cannot be written.
        BadImageError: for a bad image, unless they are skipped; and if most images are bad.
        CorpusError: for a source that cannot be used; for shards that cannot be read, when the others are complete.
    """
    state = distributed_state()
    is_first = state is None or state.is_main_process
    with locked(job.output):
        metadata = job.metadata_schema()
        info = info_of(job, embedder, model, metadata)
        todo: list[Any] = [None]
        if is_first:
            begin(job.output, info)
            todo = [missing_shards(job)]
        if state is not None:
            todo = broadcast_object_list(todo)[0][state.process_index :: state.num_processes]
        else:
            todo = todo[0]
        worker = ShardWorker(embedder, job, info, metadata)
        failed = []
        with progress_bar(len(todo), "Embedding shards", show_progress if is_first else False) as bar:
            for _, error in worker.embed(_chosen(job.shards(), todo)):
                failed += [str(error)] if error else []
                bar.update(1)
        if state is not None:
            failed = gather_object(failed)
        return finish(job, failed) if is_first else None


def _chosen(shards: Iterable[InputShard], indices: list[int]) -> Iterable[InputShard]:
    wanted = set(indices)
    return (shard for shard in shards if shard.index in wanted)

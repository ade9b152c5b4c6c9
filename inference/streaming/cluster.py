"""Embeds a source with many machines, by Ray Data.

Ray hands the input shards to actors, one for each GPU, each with a model of its own. When an actor or its machine
dies, Ray gives its shards to another actor. An output shard appears whole or not at all, so that nothing is lost by
that, and nothing is written twice.
"""

import dataclasses
import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...modeling.encoding import progress_bar
from ...utils import errors
from ...utils.errors import BabelensError, CorpusError, MissingExtraError, SaveError
from ...utils.locks import locked
from ..embedder import Embedder
from ..embedding_shards import shard_file
from .job import EmbeddingJob, info_of
from .output import Counts, begin, check_info, finish, missing_shards
from .shards import InputShard
from .worker import ShardWorker

_MAX_BLOCKS = 10_000  # into which the list of shards is divided; a block is what another actor takes over


class ShardActor:
    """Embeds shards in a process of Ray's; a callable class for `Dataset.map_batches`.

    Args:
        model: the folder or repository of the model, which every machine must be able to load.
        loading: arguments of `Embedder.from_pretrained`.
        job: the settings.
        metadata: the columns of metadata.
    """

    def __init__(self, model: str, loading: dict[str, Any], job: EmbeddingJob, metadata: pa.Schema) -> None:
        self.job = job
        self.refusal: BabelensError | None = None
        try:
            embedder = Embedder.from_pretrained(model, **loading)
            if not job.output.is_dir():
                raise SaveError(f"{job.output} is no folder on this machine: all machines need the same file system")
            info = info_of(job, embedder, model, metadata)
            check_info(job.output, info)
            self.worker = ShardWorker(embedder, job, info, metadata)
        except BabelensError as error:
            self.refusal = error

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list[str]]:
        """Embeds the shards of a batch, which are JSON.

        Returns:
            In `error`, the reason why a shard cannot be read, or else nothing; and in `stop`, the type of an error
            that ends the run. Ray's own errors would not keep the type.
        """
        shards = [shard_from_json(text) for text in batch["shard"]]
        # An actor that was killed may have written some of its shards.
        left = [shard for shard in shards if not shard_file(self.job.output, shard.index).exists()]
        try:
            if self.refusal is not None:
                raise self.refusal
            unreadable = {shard.index: str(error) for shard, error in self.worker.embed(left) if error}
        except BabelensError as error:
            return {"error": [str(error)] * len(shards), "stop": [type(error).__name__] * len(shards)}
        return {"error": [unreadable.get(shard.index, "") for shard in shards], "stop": [""] * len(shards)}


def shard_as_json(shard: InputShard) -> str:
    """A shard as a text, which Ray's tables can hold."""
    return json.dumps(dataclasses.asdict(shard))


def shard_from_json(text: str) -> InputShard:
    """The shard of such a text."""
    values = json.loads(text)
    return InputShard(**values | {"files": tuple(values["files"])})


def embed_on_ray(
    model: str,
    job: EmbeddingJob,
    *,
    address: str | None = None,
    show_progress: bool | None = None,
    **loading: Any,
) -> Counts:
    """Embeds all shards of a source that the output folder lacks, with the machines of a Ray cluster.

    There is an actor for each GPU of the cluster; in a cluster without GPUs, for each `job.workers` processor cores.

    Args:
        model: a folder or repository, which every machine must be able to load.
        job: what to embed, and where to. Source and output must be the same on all machines.
        address: the address of the cluster, such as `auto` or `ray://head:10001`; by default, this machine becomes a
            cluster. In a process that is connected to Ray, its connection is used.
        show_progress: as in `embed_source`.
        loading: arguments of `Embedder.from_pretrained`, such as `batch_size`.
    """
    ray = _ray()
    job = dataclasses.replace(job, source=_absolute(job.source), output=job.output.resolve())
    with locked(job.output):
        metadata = job.metadata_schema()
        embedder = Embedder.from_pretrained(model, **loading | {"device": "cpu"})
        begin(job.output, info_of(job, embedder, model, metadata))
        del embedder
        missing = set(missing_shards(job))
        items = [{"shard": shard_as_json(shard)} for shard in job.shards() if shard.index in missing]
        connected = ray.is_initialized()
        if not connected:
            _connect(ray, address)
        try:
            failed = _run(ray, items, (model, loading, job, metadata), job.workers, show_progress) if items else []
        finally:
            if not connected:
                ray.shutdown()
        if len(missing_shards(job)) > len(failed):
            raise SaveError(f"{job.output} lacks shards that were embedded: all machines need the same file system")
        return finish(job, failed)


def _run(
    ray: Any, items: list[dict[str, str]], arguments: tuple, workers: int, show_progress: bool | None
) -> list[str]:
    """Embeds shards; returns the errors of those that cannot be read."""
    has_gpus = ray.cluster_resources().get("GPU", 0) >= 1
    cores = max(1, workers)
    actors = int(ray.cluster_resources()["GPU"] if has_gpus else ray.cluster_resources()["CPU"] // cores)
    actors = max(1, min(actors, len(items)))
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    results = ray.data.from_items(items, override_num_blocks=min(len(items), _MAX_BLOCKS)).map_batches(
        ShardActor,
        fn_constructor_args=arguments,
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(min_size=1, initial_size=actors, max_size=actors),
        num_cpus=cores,
        num_gpus=1 if has_gpus else 0,
    )
    failed = []
    with progress_bar(len(items), "Embedding shards", show_progress) as bar:
        for row in results.iter_rows():
            if row["stop"]:
                raise getattr(errors, row["stop"])(row["error"])
            failed += [row["error"]] if row["error"] else []
            bar.update(1)
    return failed


def _connect(ray: Any, address: str | None) -> None:
    quiet: dict[str, Any] = {"logging_level": "warning", "log_to_driver": False}
    if address is None:
        quiet["include_dashboard"] = False
    try:
        ray.init(address=address or "local", **quiet)
    except ConnectionError as error:
        raise CorpusError(f"no Ray cluster at {address}: {error}") from error


def _ray() -> Any:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # Ray would report to its makers what it is used for
    try:
        ray = import_module("ray")
        import_module("ray.data")
    except ImportError as error:
        raise MissingExtraError("many machines work together by Ray: pip install 'ray[data]'") from error
    return ray


def _absolute(source: str) -> str:
    return source if "://" in source else str(Path(source).absolute())

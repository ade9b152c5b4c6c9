"""The work of one process: input shards to output shards, one after the other."""

import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from PIL import Image
from transformers import BatchFeature

from ...data.corpus.images import read_image
from ...modeling.encoding import autocasting, progress_bar
from ...processing.text_inputs import default_language
from ...utils.errors import (
    BabelensError,
    BadImageError,
    BadTextError,
    CorpusError,
    LanguageTagError,
    MissingLanguageError,
)
from ...utils.files import atomic_file
from ...utils.languages import normalize_language
from ...utils.locks import locked
from ..embedder import Embedder
from ..embedding_shards import EmbeddingsInfo, open_shard, shard_file, shard_table
from ..lookahead import results_ahead
from .job import EmbeddingJob, as_type, info_of, rows_schema
from .output import Counts, as_metadata, begin, finish, missing_shards, skipped_file
from .shards import LANGUAGE, InputShard, Record, records_of

# ---- Batches of records, prepared for the model: images decoded and resized, unusable records told apart ----


_TEXTS = 16  # batches of texts that are encoded together, so that texts of similar length can share one
_PIXELS = 1 << 25  # pixels of the images that one thread holds decoded, 100 MB


@dataclass(frozen=True)
class Skipped:
    """A record that is left out.

    Args:
        id: its id.
        kind: `no image`, `unreadable image` or `unusable metadata`.
        reason: what is wrong with it, and where it lies.
    """

    id: str
    kind: str
    reason: str


@dataclass(frozen=True)
class Batch:
    """Some records of a shard.

    Args:
        records: those that are embedded.
        rows: their metadata, in the order of the columns.
        skipped: the others.
        inputs: what the model reads of the images; None without an image, and for texts.
    """

    records: list[Record]
    rows: list[list[Any]]
    skipped: list[Skipped]
    inputs: BatchFeature | None = None


@dataclass(frozen=True)
class ShardEnd:
    """The end of a shard.

    Args:
        error: why it could not be read to its end.
    """

    error: CorpusError | None = None


class Preparation:
    """Reads shards, and prepares and encodes their records.

    Args:
        embedder: the model.
        job: the settings.
        metadata: the columns of metadata.
    """

    def __init__(self, embedder: Embedder, job: EmbeddingJob, metadata: pa.Schema) -> None:
        self.embedder, self.job, self.metadata = embedder, job, metadata

    def of_shard(self, shard: InputShard) -> Iterator[Callable[[], Batch | ShardEnd]]:
        """Reads a shard; the functions that prepare its batches, which other threads may call, and its end."""
        of_images = self.job.what == "images"
        prepare = self._images if of_images else self._texts
        size = self.embedder.batch_size * (1 if of_images else _TEXTS)
        error = None
        try:
            records = records_of(shard, self.metadata.names, self.job.what)
            while some := list(islice(records, size)):
                yield partial(prepare, some)
        except CorpusError as caught:
            error = caught
        yield partial(ShardEnd, error)

    def encode(self, batch: Batch) -> np.ndarray:
        """The embeddings of a batch that has records, float32 [n, d]."""
        if batch.inputs is not None:
            return self.embedder.encode_prepared(batch.inputs, [record.place for record in batch.records])
        texts = [record.metadata["text"] for record in batch.records]
        languages = [record.metadata[LANGUAGE] for record in batch.records]
        return self.embedder.encode_text(texts, language=languages, task=self.job.task, show_progress=False)

    def _images(self, records: list[Record]) -> Batch:
        good, rows, skipped, parts = [], [], [], []
        images: list[Image.Image] = []
        for record in records:
            found = self._image(record)
            if isinstance(found, Skipped):
                skipped.append(found)
                continue
            image, row = found
            good.append(record)
            rows.append(row)
            images.append(image)
            if sum(each.width * each.height for each in images) > _PIXELS:
                parts.append(self.embedder.prepared_images(images))
                images = []
        if images:
            parts.append(self.embedder.prepared_images(images))
        return Batch(good, rows, skipped, _joined(parts))

    def _image(self, record: Record) -> tuple[Image.Image, list[Any]] | Skipped:
        if record.defect is not None:
            return Skipped(record.id, "unusable metadata", record.defect)
        if not record.image or (record.image["bytes"] is None and record.image["path"] is None):
            return Skipped(record.id, "no image", f"{record.place}: no image")
        try:
            row = self._row(record)
        except CorpusError as error:
            return Skipped(record.id, "unusable metadata", str(error))
        try:
            return read_image(record.image, record.place, draft=self.embedder.draft), row
        except BadImageError as error:
            return Skipped(record.id, "unreadable image", str(error))

    def _texts(self, records: list[Record]) -> Batch:
        for record in records:
            text = record.metadata.get("text")
            if not isinstance(text, str) or not text or text.isspace():
                raise BadTextError(f"{record.place}: there is no text")
            language = record.metadata.get(LANGUAGE)
            language = self.job.language if language is None else language
            try:
                record.metadata[LANGUAGE] = normalize_language(language or self._default_language)
            except MissingLanguageError as error:
                raise BadTextError(f"{record.place}: there is no language, and none is guessed: {error}") from error
            except LanguageTagError as error:
                raise LanguageTagError(f"{record.place}: {error}") from error
        return Batch(records, [self._row(record) for record in records], [])

    @cached_property
    def _default_language(self) -> str:
        return default_language(self.embedder.processor)

    def _row(self, record: Record) -> list[Any]:
        try:
            return [as_type(record.metadata.get(field.name), field) for field in self.metadata]
        except CorpusError as error:
            raise CorpusError(f"{record.place}: {error}") from error


def _joined(parts: list[BatchFeature]) -> BatchFeature | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    return BatchFeature({name: torch.cat([part[name] for part in parts]) for name in parts[0]})


# ---- A process ----

_ROWS_AT_ONCE = 8192  # rows that are held before they are written


class ShardWorker:
    """Embeds shards with one model.

    Args:
        embedder: the model.
        job: the settings.
        info: what `embeddings.json` states.
        metadata: the columns of metadata.
    """

    def __init__(self, embedder: Embedder, job: EmbeddingJob, info: EmbeddingsInfo, metadata: pa.Schema) -> None:
        self.job, self.info, self.metadata = job, info, metadata
        self.schema = rows_schema(info, metadata)
        self._preparation = Preparation(embedder, job, metadata)
        self._device = embedder.model.device

    def embed(self, shards: Iterable[InputShard]) -> Iterator[tuple[InputShard, CorpusError | None]]:
        """Embeds shards. While the last images of one are encoded, the first of the next are prepared.

        Yields:
            Each shard once its file is written; or with the error, when it cannot be read.
        """
        begun: deque[tuple[InputShard, str]] = deque()  # shards whose records are read, and which are not yet written

        def jobs() -> Iterator[Any]:
            for shard in shards:
                begun.append((shard, shard.identity))  # before its files are read, which may change meanwhile
                yield from self._preparation.of_shard(shard)

        with closing(results_ahead(jobs(), self.job.workers)) as results:
            for first in results:
                shard, identity = begun.popleft()
                try:
                    self._write(shard, identity, first, results)
                except _UnreadableShard as error:
                    yield shard, error.reason
                else:
                    yield shard, None

    def _write(
        self, shard: InputShard, identity: str, first: Batch | ShardEnd, results: Iterator[Batch | ShardEnd]
    ) -> None:
        """Writes the file of a shard with this identity, of which `first` and the next `results` are."""
        counts, skipped = Counts(), list[Skipped]()
        file = shard_file(self.job.output, shard.index)
        result = first
        with open_shard(file, self.schema) as writer:
            rows = _Rows(writer)
            while isinstance(result, Batch):
                counts.read += len(result.records) + len(result.skipped)
                skipped += result.skipped
                if result.records:
                    rows.add(self._table(result))
                    self._count(result, counts)
                result = next(results)
            if result.error is not None:
                raise _UnreadableShard(result.error)
            counts.skipped.update(each.kind for each in skipped)
            rows.write()
            writer.add_key_value_metadata(as_metadata(counts, identity))
            _write_skipped(skipped_file(file), skipped)

    def _table(self, batch: Batch) -> pa.Table:
        columns = [list(column) for column in zip(*batch.rows, strict=True)] or [[] for _ in self.metadata]
        metadata = pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, self.metadata, strict=True)],
            schema=self.metadata,
        )
        with autocasting(self._device, self.job.precision):
            embeddings = self._preparation.encode(batch).astype(np.dtype(self.info.dtype))
        return shard_table([record.id for record in batch.records], embeddings, metadata)

    def _count(self, batch: Batch, counts: Counts) -> None:
        counts.embedded += len(batch.records)
        for name, column in zip(self.metadata.names, zip(*batch.rows, strict=True), strict=True):
            if empty := sum(value is None for value in column):
                counts.missing[name] += empty


class _UnreadableShard(BabelensError):
    """A shard cannot be read to its end."""

    def __init__(self, reason: CorpusError) -> None:
        super().__init__(reason)
        self.reason = reason


class _Rows:
    """Rows that are written when there are many of them, since small row groups are read slowly."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self.writer = writer
        self.tables: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        self.tables.append(table)
        if sum(map(len, self.tables)) >= _ROWS_AT_ONCE:
            self.write()

    def write(self) -> None:
        if self.tables:
            self.writer.write_table(pa.concat_tables(self.tables))
            self.tables = []


def _write_skipped(file: Path, skipped: list[Skipped]) -> None:
    if not skipped:
        file.unlink(missing_ok=True)  # of an earlier attempt
        return
    with atomic_file(file) as path, path.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in skipped)


# ---- The processes of one machine ----
# Embeds a source with the processes of one machine: one, or those that torchrun or accelerate has started.

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

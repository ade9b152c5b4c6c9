"""Batches of records, prepared for the model: images decoded and resized, unusable records told apart."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from PIL import Image
from transformers import BatchFeature

from ...configuration.errors import BadImageError, BadTextError, CorpusError, LanguageTagError, MissingLanguageError
from ...configuration.languages import normalize_language
from ...data.corpus.images import read_image
from ...processing.text_inputs import default_language
from ..embedder import Embedder
from .job import EmbeddingJob, as_type
from .records import LANGUAGE, Record, records_of
from .shards import InputShard

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
                if not self.job.skip_bad:
                    raise BadImageError(found.reason)
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

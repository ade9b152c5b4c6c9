"""What is to be embedded and where to: the settings that all processes of a run share."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from PIL import Image

from ...data.corpus.image_files import skipped_line
from ...processing.text_inputs import shown_briefly
from ...utils.errors import CorpusError, InputError
from ...utils.identity import index_identity, model_identity
from ..embedder import Embedder
from ..embedding_shards import EMBEDDING, ID, EmbeddingsInfo, shard_table
from ..sample_texts import sample_languages
from .shards import LANGUAGE, InputShard, input_shards, parquet_schema


@dataclass(frozen=True)
class EmbeddingJob:
    """What to embed, and how. Images that cannot be read, or have metadata of another type, are skipped and counted.

    Args:
        source: the images or texts, as `input_shards` takes them.
        output: the folder to write to.
        what: `images` or `texts`.
        columns: the metadata to keep (`parse_columns`). Those of texts always have `text` and `language`.
        dtype: the number format of the embeddings in the shards, `float16` or `float32`.
        precision: what the model computes in: `float32`, `bfloat16` or `float16`.
        shard_size: images of a folder, or lines of a file, in a shard. Tar and parquet files are not cut.
        workers: number of threads that prepare images in each process.
        language: the language of texts that come without one, as a BCP-47 tag.
        task: the head for texts, as in `Embedder.encode_text`.
    """

    source: str
    output: Path
    what: Literal["images", "texts"] = "images"
    columns: dict[str, str | None] = field(default_factory=dict)
    dtype: Literal["float16", "float32"] = "float16"
    precision: str = "float32"
    shard_size: int = 10_000
    workers: int = 0
    language: str | None = None
    task: str | None = None

    def shards(self, skipped: dict[str, str] | None = None) -> Iterator[InputShard]:
        """The input shards; `skipped` is that of `input_shards`."""
        return input_shards(self.source, self.what, self.shard_size, skipped)

    def metadata_schema(self) -> pa.Schema:
        """The columns of metadata with their types."""
        skipped: dict[str, str] = {}
        first = next(self.shards(skipped), None)
        if first is None:
            why = f" that can be read. {skipped_line(skipped, 0)}" if skipped else " in this source"
            raise CorpusError(f"{self.source}: no {self.what}{why}")
        columns = (dict.fromkeys(("text", LANGUAGE)) if self.what == "texts" else {}) | self.columns
        if first.kind != "parquet":
            return schema_of(columns)
        stored = parquet_schema(first.address)
        if self.what == "texts" and LANGUAGE not in stored.names:  # all texts are in that of the job
            stored = stored.append(pa.field(LANGUAGE, pa.string()))
        try:
            return schema_of(columns, stored)
        except CorpusError as error:
            raise CorpusError(f"{first.address}: {error}") from error


def info_of(job: EmbeddingJob, embedder: Embedder, model: str, metadata: pa.Schema) -> EmbeddingsInfo:
    """What `embeddings.json` states of a job.

    Args:
        job: the job.
        embedder: the model.
        model: the folder or repository that it came from.
        metadata: the columns of metadata.
    """
    settings: dict[str, Any] = {
        "what": job.what,
        "columns": {field.name: str(field.type) for field in metadata},
        "precision": job.precision,
    }
    if job.what == "images":
        settings["draft"] = embedder.draft
        probe = embedder.encode_image(Image.new("RGB", (32, 32)))
    else:
        settings |= {"language": job.language, "task": job.task}
        [language] = [job.language] if job.language else sample_languages(embedder.processor, 1)
        probe = embedder.encode_text("a", language=language, task=job.task)
    identity = index_identity if job.what == "images" else model_identity
    fingerprint = identity(embedder.model, embedder.processor)
    return EmbeddingsInfo(model, fingerprint, probe.shape[1], job.dtype, settings)


def rows_schema(info: EmbeddingsInfo, metadata: pa.Schema) -> pa.Schema:
    """The columns of an output shard."""
    return shard_table([], np.empty((0, info.dimension), info.dtype), metadata.empty_table()).schema


# ---- Columns of metadata: what of an image or text is kept beside its embedding ----

TYPES: dict[str, pa.DataType] = {
    "text": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
}
_FITS: dict[pa.DataType, Callable[[Any], bool]] = {
    TYPES["int"]: lambda value: isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63,
    TYPES["float"]: lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    TYPES["bool"]: lambda value: isinstance(value, bool),
}


def parse_columns(columns: Sequence[str]) -> dict[str, str | None]:
    """The names and types of columns such as `["url", "width:int"]`; a column without a type has None."""
    parsed: dict[str, str | None] = {}
    for column in columns:
        name, _, kind = column.partition(":")
        if not name or name in (ID, EMBEDDING) or name in parsed:
            raise InputError(f"{column!r} is no column of its own: give every name once, and not {ID} or {EMBEDDING}")
        if kind and kind not in TYPES:
            raise InputError(f"{column!r}: {kind!r} is no type of a column; there are {', '.join(TYPES)}")
        parsed[name] = kind or None
    return parsed


def schema_of(columns: Mapping[str, str | None], stored: pa.Schema | None = None) -> pa.Schema:
    """The columns with their types: those that were named, else those of a parquet file, else text.

    Args:
        columns: as `parse_columns` returns them.
        stored: the columns of a parquet source.
    """
    if stored is not None and (missing := [name for name in columns if name not in stored.names]):
        raise CorpusError(f"no column {', '.join(missing)}; there are {', '.join(stored.names)}")
    own = {name: stored.field(name).type for name in columns} if stored is not None else {}
    return pa.schema([(name, TYPES[kind] if kind else own.get(name, pa.string())) for name, kind in columns.items()])


def as_type(value: Any, field: pa.Field) -> Any:
    """A value as its column holds it. A column of text holds other values as JSON."""
    if value is None:
        return None
    if field.type == pa.string() and isinstance(value, str):
        return value
    if field.type not in _FITS or _FITS[field.type](value):
        try:
            if field.type == pa.string():
                return json.dumps(value, ensure_ascii=False)
            pa.array([value], field.type)
            return value
        except (TypeError, ValueError, OverflowError, pa.ArrowException):  # no JSON, or no value of the type
            pass
    raise CorpusError(f"{field.name} is {shown_briefly(value)}, and not of the column's type {field.type}")

"""Embeddings on disk: a folder of parquet files, as `babelens embed` writes it and `babelens index` reads it.
`embeddings.json` names the model and the width; each `shard-000000.parquet` has the columns `id` (text, unique),
`embedding` (float16 vectors of length 1) and metadata, and appears with all of its content or not at all."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..data.corpus.loading import parquet_file
from ..utils.errors import CorpusError

INFO = "embeddings.json"
ID, EMBEDDING = "id", "embedding"
_ROWS_AT_ONCE = 16_384


@dataclass(frozen=True)
class EmbeddingsInfo:
    """The content of `embeddings.json`: the folder or repository of the model, its identity (`image_identity` or
    `model_identity`), the width of the embeddings, and other settings that the shards depend on."""

    model: str
    fingerprint: str
    dimension: int
    settings: dict[str, Any] = field(default_factory=dict)


def read_info(folder: Path) -> EmbeddingsInfo:
    try:
        return EmbeddingsInfo(**json.loads((folder / INFO).read_text("utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise CorpusError(f"{folder} holds no embeddings of `babelens embed`: {error}") from error


def shard_file(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:06d}.parquet"


def shard_files(folder: Path) -> list[Path]:
    # A millionth shard has a longer name than the others.
    return sorted(folder.glob("shard-*.parquet"), key=lambda path: (len(path.name), path.name))


def read_embeddings(path: Path) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """The rows of a parquet file, some thousand at a time, each time with their embeddings as an array [n, d]."""
    file = parquet_file(path)
    kind = file.schema_arrow.field(EMBEDDING).type
    if not (pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type)):
        raise CorpusError(f"{path} has no column `{EMBEDDING}` of lists of numbers, all of one length")
    for batch in file.iter_batches(_ROWS_AT_ONCE):
        column = batch.column(EMBEDDING)
        if column.null_count or column.flatten().null_count:
            raise CorpusError(f"{path}: a row has no embedding, or one with a missing number")
        yield batch, column.flatten().to_numpy().reshape(len(batch), kind.list_size)

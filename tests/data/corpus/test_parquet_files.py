"""Parquet files are read without being held."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelens.data.corpus.parquet_files import parquet_file
from babelens.inference import embedding_shards
from babelens.inference.embedding_shards import EmbeddingsInfo
from babelens.inference.input_shards import InputShard, records_of
from babelens.search import embeddings_source

GROUPS, ROWS, WIDTH = 16, 512, 256


@pytest.fixture
def file(tmp_path):
    """Eight megabytes of vectors that do not compress, and as many of images, in sixteen groups of rows."""
    random = np.random.default_rng(0)
    schema = pa.schema([("id", pa.string()), ("image", pa.binary()), ("embedding", pa.list_(pa.float32(), WIDTH))])
    with pq.ParquetWriter(tmp_path / "vectors.parquet", schema, use_dictionary=False) as writer:
        for group in range(GROUPS):
            vectors = random.standard_normal((ROWS, WIDTH), dtype=np.float32)
            ids = [f"{group}-{row}" for row in range(ROWS)]
            columns = [ids, list(map(bytes, vectors)), pa.FixedSizeListArray.from_arrays(vectors.ravel(), WIDTH)]
            writer.write_table(pa.table(columns, schema=schema))
    return tmp_path / "vectors.parquet"


@pytest.mark.parametrize("way", ["file", "vectors", "images"])
def test_what_was_read_is_not_held(file, way, monkeypatch):
    monkeypatch.setattr(embedding_shards, "_ROWS_AT_ONCE", 256)
    read = {
        "file": lambda: parquet_file(file).iter_batches(256),
        "vectors": lambda: embeddings_source(file, EmbeddingsInfo("model", "print", WIDTH)).read(),
        "images": lambda: records_of(InputShard(0, str(file)), [], "images"),
    }[way]
    before, held = pa.total_allocated_bytes(), []
    for index, _ in enumerate(read()):
        if way != "images" or index % ROWS == 0:
            held.append(pa.total_allocated_bytes() - before)
    assert max(held) < file.stat().st_size / 3

"""Small sources of vectors for indexes."""

import numpy as np
import pyarrow as pa

from babelens.inference.embedding_shards import EmbeddingsInfo
from babelens.search import VectorSource

WIDTH = 16
SCHEMA = pa.schema([("id", pa.string()), ("width", pa.int32()), ("license", pa.string()), ("taken", pa.date32())])


def unit(random, rows, width=WIDTH):
    drawn = random.standard_normal((rows, width))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float16)


def clustered(random, rows, width, latent=24):
    """Vectors around centres in a space of few dimensions, as those of images are."""
    centers = random.standard_normal((rows // 100, latent))[random.integers(rows // 100, size=rows)]
    points = (centers + 0.7 * random.standard_normal((rows, latent))) @ random.standard_normal((latent, width))
    points += 0.05 * random.standard_normal((rows, width))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float16)


def source_of(vectors, start=0, *, ids=None, fingerprint="f" * 24, schema=SCHEMA):
    """Vectors with ids `start` … and metadata, some of it missing; in two batches."""
    numbers = range(start, start + len(vectors))
    rows = pa.table(
        {
            "id": ids or [f"{number:06d}.jpg" for number in numbers],
            "width": pa.array([number if number % 7 else None for number in numbers], pa.int32()),
            "license": [["cc0", "it's mine", None][number % 3] for number in numbers],
            "taken": pa.array(list(numbers), pa.int32()).cast(pa.date32()),
        }
    ).select(schema.names)

    def read():
        half = len(vectors) // 2
        yield rows.slice(0, half), vectors[:half]
        yield rows.slice(half), vectors[half:]

    return VectorSource(EmbeddingsInfo("a/model", fingerprint, vectors.shape[1]), schema, read, "the test's vectors")

import json
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from babelens.inference.embed import INFO, EmbeddingsInfo, shard_file

WIDTH = 16


def unit(random, rows, width=WIDTH):
    drawn = random.standard_normal((rows, width))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float16)


def clustered(random, rows, width, latent=24):
    centers = random.standard_normal((rows // 100, latent))[random.integers(rows // 100, size=rows)]
    points = (centers + 0.7 * random.standard_normal((rows, latent))) @ random.standard_normal((latent, width))
    points += 0.05 * random.standard_normal((rows, width))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float16)


def embedded(folder, vectors, *, ids=None, fingerprint="f" * 24):
    folder.mkdir(parents=True)
    info = EmbeddingsInfo("a/model", fingerprint, vectors.shape[1])
    (folder / INFO).write_text(json.dumps(asdict(info)))
    numbers = range(len(vectors))
    ids = ids or [f"{number:06d}.jpg" for number in numbers]
    metadata = pa.table(
        {
            "width": pa.array([number if number % 7 else None for number in numbers], pa.int32()),
            "license": [["cc0", "it's mine", None][number % 3] for number in numbers],
            "taken": pa.array(list(numbers), pa.int32()).cast(pa.date32()),
        }
    )
    half = len(vectors) // 2
    for number, part in enumerate((slice(0, half), slice(half, None))):
        rows = metadata.slice(part.start, None if part.stop is None else half)
        embeddings = pa.FixedSizeListArray.from_arrays(pa.array(vectors[part].reshape(-1)), vectors.shape[1])
        table = pa.table({"id": pa.array(ids[part]), "embedding": embeddings})
        for name in rows.column_names:
            table = table.append_column(name, rows[name])
        pq.write_table(table, shard_file(folder, number))
    return folder

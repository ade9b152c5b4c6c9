"""Sources that are embedded as shards, and what the embedder alone makes of them."""

import numpy as np

from babelens.inference.embedding_shards import read_embeddings, shard_files
from babelens.inference.streaming.job import EmbeddingJob, parse_columns
from babelens.inference.streaming.worker import embed_source
from tests.support.image_sources import drawn


def embed(embedder, source, output, columns=(), **settings):
    """Embeds a source; returns the counts, and the ids and embeddings in the order of the shards."""
    job = EmbeddingJob(str(source), output, columns=parse_columns(columns), **settings)
    counts = embed_source(embedder, job, model="tiny")
    rows = (each for path in shard_files(output) for each in read_embeddings(path))
    batches = [(batch.column("id").to_pylist(), embeddings) for batch, embeddings in rows]
    ids = [each for names, _ in batches for each in names]
    return counts, ids, np.concatenate([embeddings for _, embeddings in batches]) if batches else None


def expected(embedder, numbers):
    """By the embedder alone, in batches of shards of four."""
    return embedder.encode_image([drawn(number) for number in numbers])

"""Embeddings of more images or texts than fit in memory: shards in, shards out.

A source is a sequence of input shards (`shards`). Each becomes one shard of the output folder, which appears whole or
not at all, so that a run that was killed goes on with the shards that are missing (`output`). Images are read and
prepared in threads while the model encodes others (`preparing`). One process embeds shards by `worker`, several
processes of one machine share them by `machine`, and many machines by `cluster`.
"""

"""Batches of concurrent queries: what comes in within a few milliseconds is encoded by one pass of the model."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np

from ..configuration.errors import ServerBusyError
from .limits import ServingLimits


class QueryBatcher:
    """Encodes queries that are asked at the same time in batches.

    While a batch is encoded, the queries that come in form the next one. A query that cannot be encoded fails alone:
    the other queries of its batch are encoded one by one.

    Args:
        encode: computes the embeddings of a list of queries, [N, d].
        executor: where `encode` runs; a model needs an executor with one thread.
        limits: the size of a batch, how long the first query waits for others, and how many queries may wait.
    """

    def __init__(self, encode: Callable[[list[Any]], np.ndarray], executor: Executor, limits: ServingLimits) -> None:
        self._encode, self._executor, self._limits = encode, executor, limits
        self._waiting: list[tuple[Any, asyncio.Future[np.ndarray]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def embedding(self, query: Any) -> np.ndarray:
        """The embedding of a query, [d].

        Raises:
            ServerBusyError: when too many queries wait already.
            Exception: what `encode` raises for this query.
        """
        if len(self._waiting) >= self._limits.waiting:
            raise ServerBusyError(f"{len(self._waiting)} queries are waiting already: ask again in a moment")
        answer: asyncio.Future[np.ndarray] = asyncio.get_running_loop().create_future()
        self._waiting.append((query, answer))
        if self._worker is None:
            self._worker = asyncio.create_task(self._encode_waiting())
        return await answer

    async def _encode_waiting(self) -> None:
        """Encodes batches until no query waits."""
        try:
            await asyncio.sleep(self._limits.batch_seconds)
            while self._waiting:
                batch = self._waiting[: self._limits.batch_size]
                del self._waiting[: len(batch)]
                batch = [(query, answer) for query, answer in batch if not answer.done()]  # some have been cancelled
                results = await asyncio.get_running_loop().run_in_executor(
                    self._executor, self._each, [query for query, _ in batch]
                )
                for (_, answer), result in zip(batch, results, strict=True):
                    if answer.done():
                        continue
                    if isinstance(result, Exception):
                        answer.set_exception(result)
                    else:
                        answer.set_result(result)
        finally:
            self._worker = None

    def _each(self, queries: list[Any]) -> Sequence[np.ndarray | Exception]:
        """The embedding of each query, or the error that it raises."""
        if not queries:
            return []
        try:
            return list(self._encode(queries))
        except Exception as error:
            if len(queries) == 1:
                return [error]
            return [result for query in queries for result in self._each([query])]

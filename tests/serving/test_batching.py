"""Concurrent queries are encoded together, and fail alone."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from babelens.configuration.errors import ServerBusyError, UnknownLanguageError
from babelens.serving.gate import ServingLimits
from babelens.serving.service import QueryBatcher


class Encoder:
    """Encodes numbers, and refuses negative ones."""

    def __init__(self):
        self.batches = []

    def __call__(self, queries):
        self.batches.append(list(queries))
        if min(queries) < 0:
            raise UnknownLanguageError(f"no {min(queries)}")
        return np.array([[query, 2 * query] for query in queries], dtype=np.float32)


def asked(queries, **limits):
    """What each query is answered, and the batches."""
    encode = Encoder()

    async def ask():
        batcher = QueryBatcher(encode, executor, ServingLimits(**limits))
        return await asyncio.gather(*map(batcher.embedding, queries), return_exceptions=True)

    with ThreadPoolExecutor(1) as executor:
        return asyncio.run(ask()), encode.batches


def test_queries_of_the_same_time_are_one_batch_and_get_their_own_rows():
    answers, batches = asked(range(10), batch_size=8)
    assert [each.tolist() for each in answers] == [[n, 2 * n] for n in range(10)]
    assert batches == [list(range(8)), [8, 9]]


def test_a_query_fails_alone():
    answers, _ = asked([1, -2, 3])
    assert isinstance(answers[1], UnknownLanguageError)
    assert [answers[0].tolist(), answers[2].tolist()] == [[1, 2], [3, 6]]


def test_too_many_queries_are_refused():
    answers, _ = asked(range(5), waiting=3)
    assert [isinstance(each, ServerBusyError) for each in answers] == [False] * 3 + [True] * 2


def test_who_has_gone_is_not_waited_for_and_the_next_is_answered():
    encode = Encoder()

    async def ask():
        batcher = QueryBatcher(encode, executor, ServingLimits())
        gone = asyncio.create_task(batcher.embedding(1))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        await asyncio.sleep(0.05)
        return await batcher.embedding(2)

    with ThreadPoolExecutor(1) as executor:
        assert asyncio.run(ask()).tolist() == [2, 4]
    assert encode.batches == [[2]]

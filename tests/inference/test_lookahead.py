"""Threads that work ahead: results in order, many threads for long jobs and one at a time for short ones."""

import threading
import time
from collections.abc import Callable

import pytest

from babelens.inference.lookahead import results_ahead

WORKERS = 3


class Watched:
    """Jobs that count how many of them are done at the same time."""

    def __init__(self) -> None:
        self.running, self.most, self.lock = 0, 0, threading.Lock()

    def job(self, number: int, seconds: float) -> Callable[[], int]:
        def work() -> int:
            with self.lock:
                self.running += 1
                self.most = max(self.most, self.running)
            time.sleep(seconds)
            with self.lock:
                self.running -= 1
            return number

        return work


def test_short_jobs_are_done_one_after_the_other(monkeypatch):
    monkeypatch.setattr("babelens.inference.lookahead._SHORT", 60.0)  # whatever else the machine does
    monkeypatch.setattr("babelens.inference.lookahead._SHORT_AT_FIRST", 60.0)
    watched = Watched()
    assert list(results_ahead((watched.job(n, 0.001) for n in range(30)), WORKERS)) == [*range(30)]
    assert watched.most == 1


def test_long_jobs_are_done_by_all_threads():
    watched = Watched()
    assert list(results_ahead((watched.job(n, 0.3) for n in range(9)), WORKERS)) == [*range(9)]
    assert watched.most == WORKERS


def test_jobs_that_become_long_are_done_by_all_threads():
    watched = Watched()
    jobs = (watched.job(n, 0.0 if n < 5 else 0.3) for n in range(14))
    assert list(results_ahead(jobs, WORKERS)) == [*range(14)]
    assert watched.most == WORKERS


def test_an_error_of_a_short_job_comes_in_its_turn():
    def bad() -> int:
        raise ValueError("bad")

    results = results_ahead(iter([lambda: 1, bad, lambda: 3]), WORKERS)
    assert next(results) == 1
    with pytest.raises(ValueError, match="bad"):
        next(results)

"""Work that is done in threads ahead of the one who waits for its results."""

import os
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import Full, Queue
from threading import Event, Thread
from typing import TypeVar

Result = TypeVar("Result")
_PATIENCE = 0.1  # seconds after which a thread that waits looks whether it should end
# Seconds up to which a job is short; the first one, which may import what it needs, has more of them.
_SHORT, _SHORT_AT_FIRST = 0.02, 0.2


def spare_threads(most: int, *, beside: int) -> int:
    """The number of threads that may work beside a model without taking its cores, at most `most`.

    Args:
        most: the largest number.
        beside: the number of threads that are busy with the model. Of the cores of the machine, shared with the other
            processes of its run, the others are spare.
    """
    cores = (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return max(0, min(cores - beside, most))


def results_ahead(jobs: Iterator[Callable[[], Result]], workers: int) -> Generator[Result, None, None]:
    """The results of jobs, in the order of the jobs.

    One thread takes the jobs from their iterator, which may read files, and some threads do them. Few jobs are begun
    before their results are taken, so that memory does not grow with the number of jobs. Decoding and resizing images
    release Python's lock; with threads, no image is copied between processes. Short jobs, such as batches of icons,
    are done one after the other: in several threads they would keep each other from Python's lock.

    Args:
        jobs: functions without arguments.
        workers: number of threads that do the jobs; with 0, each is done when its result is asked for.
    """
    if not workers:
        yield from (job() for job in jobs)
        return
    begun: Queue[Future[Result] | None] = Queue(maxsize=2 * workers)
    ended = Event()

    def hand_over(future: Future[Result] | None) -> None:
        while not ended.is_set():
            try:
                return begun.put(future, timeout=_PATIENCE)
            except Full:
                continue

    def take_jobs() -> None:
        all_were_short = True
        try:
            for number, job in enumerate(jobs):
                if ended.is_set():
                    return
                future = pool.submit(job)
                hand_over(future)
                if all_were_short:
                    all_were_short = not wait([future], _SHORT if number else _SHORT_AT_FIRST).not_done
            hand_over(None)
        except BaseException as error:
            failed: Future[Result] = Future()
            failed.set_exception(error)
            hand_over(failed)

    pool = ThreadPoolExecutor(workers, thread_name_prefix="prepare")
    reader = Thread(target=take_jobs, name="read", daemon=True)
    reader.start()
    try:
        while (future := begun.get()) is not None:
            yield future.result()
    finally:
        ended.set()
        while not begun.empty():
            begun.get_nowait()
        reader.join()
        pool.shutdown(cancel_futures=True)

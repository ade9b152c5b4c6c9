"""Two sides timed by turns in one process, so that whatever else the machine does slows both."""

import time
from collections.abc import Callable

Step = Callable[[], object]
Clock = Callable[[], float]


def ratios(one: Step, other: Step, rounds: int, clock: Clock = time.perf_counter) -> list[float]:
    """Time of `one` by time of `other`, turn by turn, after a turn of each that does not count."""
    one(), other()
    return [seconds(one, clock) / seconds(other, clock) for _ in range(rounds)]


def seconds(step: Step, clock: Clock = time.perf_counter) -> float:
    start = clock()
    step()
    return clock() - start

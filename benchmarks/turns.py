"""Times two functions alternately in one process, so that other load of the machine slows both alike."""

import time
from collections.abc import Callable

Step = Callable[[], object]
Clock = Callable[[], float]


def ratios(one: Step, other: Step, rounds: int, clock: Clock = time.perf_counter) -> list[float]:
    """The time of `one` divided by that of `other` in each round, after one call of each that is not timed."""
    one(), other()
    return [seconds(one, clock) / seconds(other, clock) for _ in range(rounds)]


def seconds(step: Step, clock: Clock = time.perf_counter) -> float:
    start = clock()
    step()
    return clock() - start

"""Times functions alternately in one process, so that other load of the machine slows all of them alike."""

import platform
import time
from collections.abc import Callable, Mapping

import numpy as np
import torch
import transformers

Step = Callable[[], object]
Clock = Callable[[], float]


def by_turns(steps: Mapping[str, Step], rounds: int, clock: Clock = time.perf_counter) -> dict[str, np.ndarray]:
    """The seconds of each step in each round [rounds], after one call of each that is not timed."""
    for step in steps.values():
        step()
    turns = [[seconds(step, clock) for step in steps.values()] for _ in range(rounds)]
    return dict(zip(steps, np.array(turns).T, strict=True))


def ratios(one: Step, other: Step, rounds: int, clock: Clock = time.perf_counter) -> np.ndarray:
    """The time of `one` divided by that of `other` in each round."""
    times = by_turns({"one": one, "other": other}, rounds, clock)
    return times["one"] / times["other"]


def seconds(step: Step, clock: Clock = time.perf_counter) -> float:
    start = clock()
    step()
    return clock() - start


def quartiles(values: np.ndarray | list[float], digits: int = 2) -> str:
    """The median of ratios, with quartiles."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def machine(threads: int) -> str:
    """What the times are of."""
    processor = platform.processor() or platform.machine()
    return f"{processor}, {threads} threads, torch {torch.__version__}, transformers {transformers.__version__}"

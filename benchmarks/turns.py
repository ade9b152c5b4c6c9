"""Times functions alternately in one process, so that other load of the machine slows all of them alike."""

import importlib.metadata
import platform
import time
from collections.abc import Callable, Mapping

import numpy as np

Step = Callable[[], object]
Clock = Callable[[], float]


def by_turns(steps: Mapping[str, Step], rounds: int, clock: Clock = time.perf_counter) -> dict[str, np.ndarray]:
    """The seconds of each step in each round [rounds], after one call of each that is not timed."""
    for step in steps.values():
        step()
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            start = clock()
            step()
            taken[name].append(clock() - start)
    return {name: np.array(seconds) for name, seconds in taken.items()}


def quartiles(values: np.ndarray | list[float], digits: int = 2) -> str:
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def versions(*packages: str) -> str:
    named = ("torch", "transformers", *packages)
    found = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in named)
    return f"{found}, Python {platform.python_version()}"

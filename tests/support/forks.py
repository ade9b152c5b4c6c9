"""Processes of tests that may be killed at any moment."""

import os
import threading

from tqdm import tqdm


def forked() -> int:
    """As `os.fork`. The child has a lock of its own for progress bars.

    Otherwise, tqdm's lock is one for this process and all that are forked from it. A child that is killed while it
    holds it leaves it locked, and all later ones wait for it forever.
    """
    process = os.fork()
    if process == 0:
        tqdm.set_lock(threading.RLock())
    return process

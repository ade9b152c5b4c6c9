"""Processes of tests that may be killed at any moment."""

import os
import threading

import torch
from tqdm import tqdm


def forked() -> int:
    """As `os.fork`. The child has a lock of its own for progress bars, and computes with one thread.

    Otherwise, tqdm's lock is one for this process and all that are forked from it. A child that is killed while it
    holds it leaves it locked, and all later ones wait for it forever. So would the child for OpenMP's threads, which
    are not forked, if this process has computed with several.
    """
    process = os.fork()
    if process == 0:
        tqdm.set_lock(threading.RLock())
        torch.set_num_threads(1)
    return process

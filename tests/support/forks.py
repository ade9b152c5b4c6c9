"""Processes of tests that may be killed at any moment."""

import os
import threading

import torch
from tqdm import tqdm


def forked() -> int:
    """As `os.fork`, with a separate lock for progress bars, and one thread. tqdm's lock is shared with all forked
    processes: a child that is killed while it holds the lock would leave all later ones waiting forever. A child would
    also wait for OpenMP's threads, which are not forked, if this process has computed with several."""
    process = os.fork()
    if process == 0:
        tqdm.set_lock(threading.RLock())
        torch.set_num_threads(1)
    return process

"""Processes that tests kill do not stop those that come after them."""

import os
import signal
import sys

import pytest
from tqdm import tqdm

from tests.support.forks import forked


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.timeout(60)
def test_a_child_that_is_killed_with_the_lock_of_progress_bars_leaves_it_to_others():
    tqdm.get_lock()  # which is made when it is first needed, and then inherited
    if (child := forked()) == 0:
        tqdm.get_lock().acquire()
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    if (child := forked()) == 0:
        signal.alarm(30)
        tqdm(total=1, disable=False).close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

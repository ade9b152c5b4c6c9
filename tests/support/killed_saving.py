import itertools
import os
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn

from tests.support.forks import forked

CHANGES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir")


def killed_at_each_operation(
    save: Callable[[], Any], prepare: Callable[[], Any], *, events: Collection[str] = CHANGES
) -> Iterator[int]:
    """Runs `prepare` here and `save` in a process that is killed before its first operation on a file; then before the
    second; and so on until it ends. Yields the number of the operation after each kill."""
    for number in itertools.count(1):
        prepare()
        child = forked()
        if child == 0:
            _save_and_die(save, number, events)
        status = os.waitpid(child, 0)[1]
        if status == 0:
            return
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
        yield number


def _save_and_die(save: Callable[[], Any], number: int, events: Collection[str]) -> NoReturn:
    seen = itertools.count(1)

    def hook(event: str, _: Any) -> None:
        if event in events and next(seen) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    try:
        save()
        os._exit(0)
    finally:
        traceback.print_exc()
        os._exit(1)

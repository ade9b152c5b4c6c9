"""One process at a time in an output folder.

Two runs that train into the same folder would delete each other's checkpoints. The lock is the system's (`flock`), so
that it ends with the process that holds it, however that ends.
"""

import logging
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accelerate.utils.environment import get_int_from_env
from filelock import FileLock, Timeout

from ..configuration.errors import SaveError
from .saving import made

logger = logging.getLogger(__name__)

_LOCK = ".lock"
_RANKS = ["RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"]


def is_first_process() -> bool:
    """Whether this process is the first of a distributed job, or alone; known before the job's group is."""
    return get_int_from_env(_RANKS, 0) == 0


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Within, no other process can have `folder`; of the processes of a distributed job the first one locks it for
    all.

    Raises:
        SaveError: when another process has it.
        OSError: when the folder cannot be made or written to.
    """
    if not is_first_process():
        yield
        return
    folder = Path(folder).resolve()
    with made(folder):
        lock = FileLock(folder / _LOCK, blocking=False, fallback_to_soft=False)
        try:
            lock.acquire()
        except Timeout:
            raise SaveError(
                f"{folder} is in use by {_holder(folder)}: wait until it has ended, or choose another folder"
            ) from None
        except NotImplementedError:
            logger.warning("%s is on a file system without locks: nothing keeps a second run out of it", folder)
            yield
            return
        try:
            (folder / _LOCK).write_text(
                f"process {os.getpid()} on {socket.gethostname()} ({shlex.join(sys.argv)})", encoding="utf-8"
            )
            yield
        finally:
            (folder / _LOCK).unlink(missing_ok=True)  # whoever waits for this very file sees that it is gone
            lock.release()


def _holder(folder: Path) -> str:
    try:
        return (folder / _LOCK).read_text(encoding="utf-8") or "another process"
    except OSError:
        return "another process"

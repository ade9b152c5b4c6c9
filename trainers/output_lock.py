"""A lock that lets one run at a time use an output folder.

Two runs in the same folder would delete each other's checkpoints. The operating system holds the lock (`flock`), and
releases it when the process ends, even if it is killed.
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
    """Whether this process is the first of a distributed job or the only one; can be called before the job's process
    group exists."""
    return get_int_from_env(_RANKS, 0) == 0


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Locks a folder during the block. In a distributed job, the first process locks it for all.

    Raises:
        SaveError: if another process holds the lock.
        OSError: if the folder cannot be created or written to.
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
            # Deleted before the release, so that no other process locks a file that is about to be deleted.
            (folder / _LOCK).unlink(missing_ok=True)
            lock.release()


def _holder(folder: Path) -> str:
    try:
        return (folder / _LOCK).read_text(encoding="utf-8") or "another process"
    except OSError:
        return "another process"

"""A lock that lets one run at a time use an output folder.

Two runs in the same folder would delete each other's checkpoints.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accelerate.utils.environment import get_int_from_env

from .files import made
from .locks import locked_folder

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
    with made(folder), locked_folder(folder):
        yield

"""Locks that let one process at a time write to a folder or a file: another one stops, or waits until it is free.

The operating system holds a lock (`flock`), and releases it when the process ends, even if it is killed.
"""

import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from .errors import ArgumentError, SaveError
from .files import atomic_folder, errors_naming, made, remove_unfinished
from .redaction import typed_command

logger = logging.getLogger(__name__)

LOCK = ".babelens.lock"


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Locks an existing folder during the block.

    Raises:
        SaveError: if another process holds the lock; the message names that process.
        OSError: if the folder cannot be written to.
    """
    with _held(folder / LOCK, folder, waits=False):
        yield


@contextmanager
def locked_path(path: str | Path) -> Iterator[None]:
    """Locks a file or a folder that does not exist yet during the block, by a hidden file beside it.

    Missing parent folders of `path` are created, and removed again if nothing is written to them.

    Raises:
        SaveError: if another process holds the lock, which the message names, or the folder cannot be written to.
    """
    path = Path(path).resolve()
    with ExitStack() as stack:
        with errors_naming(path):
            stack.enter_context(made(path.parent))
            stack.enter_context(_held(_lock_beside(path), path, waits=False))
        yield


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """Yields an empty folder to write to, which becomes `path` when the block ends without an error (`atomic_folder`).
    No other process makes a folder of that name meanwhile.

    Raises:
        ArgumentError: if there is something of that name already which is not an empty folder.
        SaveError: if another process holds the lock, or the folder cannot be written.
    """
    path = Path(path)
    check_new(path)
    with locked_path(path):
        check_new(path)  # once more: another process may have made it and let go
        target = Path(os.path.realpath(path))
        if target.is_dir():
            target.rmdir()
        remove_unfinished(target.parent, target.name)
        with atomic_folder(path) as folder:
            yield folder


def check_new(path: str | Path) -> None:
    """Checks that a folder can be made, before the work that fills it.

    Raises:
        ArgumentError: if there is something of that name already which is not an empty folder.
    """
    path = Path(path)
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        raise ArgumentError(f"{path} exists: name a new folder")


@contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Locks a file of a cache during the block, by a hidden file beside it.

    While another process holds the lock, this one waits, and logs for which process.

    Raises:
        OSError: if the folder of `path` cannot be written to.
    """
    with _held(_lock_beside(path), path, waits=True):
        yield


def _lock_beside(path: Path) -> Path:
    return path.with_name(f".{path.name}{LOCK}")


@contextmanager
def _held(file: Path, path: Path, *, waits: bool) -> Iterator[None]:
    """Holds the lock `file` of `path` during the block; if another process has it, `waits` or raises a SaveError."""
    lock = FileLock(file, fallback_to_soft=False)
    try:
        try:
            lock.acquire(blocking=False)
        except Timeout:
            if not waits:
                raise SaveError(
                    f"{path} is in use by {_holder(file)}: wait until it has ended, or choose another name"
                ) from None
            logger.info("waiting: %s is in use by %s", path, _holder(file))
            lock.acquire()
    except NotImplementedError:
        logger.warning("%s is on a file system without locks: nothing keeps a second process out of it", path)
        yield
        return
    try:
        with suppress(OSError):  # a full disk; Windows, where a locked file cannot be written to by another handle
            holder = f"process {os.getpid()} on {socket.gethostname()} ({typed_command()})"
            file.write_text(holder, encoding="utf-8", errors="backslashreplace")  # a name need not be UTF-8
        yield
    finally:
        if sys.platform == "win32":  # which deletes no open file
            lock.release()
            with suppress(OSError):  # another process has opened it by now
                file.unlink()
        else:
            # Deleted before the release, so that no other process locks a file that is about to be deleted.
            file.unlink(missing_ok=True)
            lock.release()


def _holder(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8") or "another process"
    except OSError:
        return "another process"


# ---- Output folders ----
# One run at a time uses an output folder: two would delete each other's checkpoints.

_RANKS = ["RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"]


def is_first_process() -> bool:
    """Whether this process is the first of a distributed job or the only one; can be called before the job's process
    group exists."""
    from accelerate.utils.environment import get_int_from_env  # commands answer --help without it

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

"""Atomic writes: a file or a folder appears with all of its content, or not at all."""

import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from .errors import BabelensError, SaveError

_SCRATCH = ".unfinished-"


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path to write to; when the block ends without an error, that file replaces `path`.

    The temporary file has the same name and lies in a hidden folder beside `path`, which is deleted in either case.
    Missing parent folders of `path` are created. If `path` is a link, the file that it points to is replaced.

    Examples:
        >>> with atomic_file("results.json") as unfinished:
        ...     unfinished.write_text("{}")

    Raises:
        SaveError: if the file cannot be written, or if `path` is not a regular file. The message names `path`, whose
            earlier content is kept.
    """
    target = Path(os.path.realpath(path))
    with errors_naming(path):
        if target.exists() and not target.is_file():  # replacing a device would remove it
            raise OSError("there is something of that name that is not a file")
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=_SCRATCH, dir=target.parent) as scratch:
            unfinished = Path(scratch, target.name)
            yield unfinished
            apply_umask(unfinished)
            _reach_disk(unfinished)
            os.replace(unfinished, target)


@contextmanager
def atomic_folder(folder: str | Path) -> Iterator[Path]:
    """Yields an empty folder to write files to; it becomes `folder` when the block ends without an error.

    After an error it is deleted. If another process has created `folder` in the meantime, that folder is kept.

    Raises:
        SaveError: if the folder cannot be written. The message names `folder`.
    """
    target = Path(os.path.realpath(folder))
    with errors_naming(folder):
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=_SCRATCH, dir=target.parent) as scratch:
            unfinished = Path(scratch, target.name)
            unfinished.mkdir()
            yield unfinished
            apply_umask(*unfinished.rglob("*"))
            for file in filter(Path.is_file, unfinished.rglob("*")):
                _reach_disk(file)
            try:
                unfinished.rename(target)
            except OSError:
                if not target.is_dir():
                    raise


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """Creates a folder and its missing parents; after the block, those of them that are empty are removed again."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for path in missing:
            try:
                path.rmdir()
            except OSError:  # it is not empty
                break


def remove_unfinished(folder: str | Path, name: str | None = None) -> None:
    """Removes what killed processes left of files and folders that they were writing in a folder, or of the one of
    that name alone.

    No other process may be writing there (`locks.locked`), or that one.
    """
    for scratch in Path(folder).glob(f"{_SCRATCH}*"):
        if name is None or (scratch / name).exists():
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def errors_naming(path: str | Path, left: str = "nothing was left there") -> Iterator[None]:
    """Turns an `OSError` of the block into one sentence that names `path` and what is `left` of it.

    Raises:
        SaveError: with the number of the original error. Errors of babelens pass as they are.
    """
    try:
        yield
    except BabelensError:
        raise
    except OSError as error:
        told = SaveError(f"{path} could not be written, and {left}: {error.strerror or error}")
        told.errno = error.errno
        raise told from error


def apply_umask(*paths: Path) -> None:
    """Gives files the permissions of any new file, by the umask; folders and links stay as they are.

    Libraries write weights through temporary files, which nobody else can read.
    """
    files = [path for path in paths if path.is_file() and not path.is_symlink()]
    if not files:
        return
    with TemporaryDirectory(prefix=_SCRATCH, dir=files[0].parent) as scratch:
        probe = Path(scratch, "probe")
        probe.touch()
        permissions = stat.S_IMODE(probe.stat().st_mode)
    for file in files:
        file.chmod(permissions)


def _reach_disk(file: Path) -> None:
    """Writes a file's content from the system's cache to the disk, so that a power failure does not empty it."""
    with file.open("rb+") as written:
        os.fsync(written.fileno())


# ---- Errors of libraries in Rust ----

# Libraries in Rust, such as tokenizers and safetensors, end the messages of system errors like this.
_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)$")


def system_error_number(error: Exception) -> int | None:
    """Returns the number of the system error that the message of a Rust library ends with, or None."""
    found = _SYSTEM_ERROR.search(str(error))
    return int(found[1]) if found else None


@contextmanager
def disk_errors() -> Iterator[None]:
    """Turns the bare `Exception` that tokenizers raises when it cannot write into an `OSError`.

    Raises:
        OSError: if a tokenizer in the block could not be written.
    """
    try:
        yield
    except Exception as error:
        number = system_error_number(error)
        if type(error) is not Exception or number is None:
            raise
        raise OSError(number, str(error)) from error

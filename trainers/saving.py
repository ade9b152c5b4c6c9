"""Folders that are saved whole.

A model is many files, and no file system replaces many files at once. Nor can its folder be exchanged for another one:
it may be a mount, a link to another disk or the working directory, it may stand where nobody may write, and it holds
checkpoints and reports as well. So everything happens inside of it, and what is killed on the way can be finished:

1. The files are written to `.saving` in the folder, and reach the disk.
2. `.saving` becomes `.saved`. From now on the new files are whole.
3. What loaders begin with, `config.json` and `adapter_config.json`, leaves the folder, and so do weights that the new
   model does not replace. `.saved` becomes `.moving`.
4. The new files move to their places, `config.json` and `adapter_config.json` after all others.

Killed before step 3, the folder is what it was. Killed within steps 3 and 4 it has no configuration, so that nothing
loads from it, and `finish_saving`, with which the next save or run into the folder begins, does the rest. At no moment
do weights of one model stand beside the configuration of another.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from ..configuration.errors import SaveError
from ..configuration.saved_folders import FIRST_READ, MOVING, WHOLE
from ..processing.tokenizer_files import system_error_number

SCRATCH = ".saving"
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")


@contextmanager
def atomic_directory(folder: str | Path) -> Iterator[Path]:
    """A scratch folder whose files move into `folder` when the block ends well, and vanish when it does not.

    Args:
        folder: is made where it is missing; other files in it remain, but for weights of another model.

    Raises:
        SaveError: when the block cannot write, or the files cannot be moved.
    """
    folder = Path(folder).resolve()
    with made(folder):
        finish_saving(folder)
        scratch = folder / SCRATCH
        scratch.mkdir()
        try:
            with removed_on_failure(scratch, called=folder):
                yield scratch
                sync_files(scratch)
                scratch.rename(folder / WHOLE)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        finish_saving(folder)


def finish_saving(folder: str | Path) -> bool:
    """Moves the files of a save that was broken off to their places if they were written whole, and else deletes them.

    Returns:
        Whether there were such files.

    Raises:
        SaveError: when they cannot be moved; they are kept.
    """
    folder = Path(folder)
    whole, moving = folder / WHOLE, folder / MOVING
    shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    if not (whole.is_dir() or moving.is_dir()):
        return False
    try:
        if whole.is_dir():
            _clear(folder, whole)
            sync(folder)
            whole.rename(moving)
        _move(moving, folder)
        shutil.rmtree(moving)
        sync(folder)
    except OSError as error:
        left = moving if moving.is_dir() else whole
        raise SaveError(
            error.errno,
            f"could not save to {folder}: the files were written, and lie in {left}, but cannot be moved to their "
            f"places ({error}). When that is mended, the same command with --resume does the rest",
        ) from error
    return True


def _clear(folder: Path, whole: Path) -> None:
    """Removes what may not stand beside the new files, if those are a model's."""
    if not any((whole / name).is_file() for name in FIRST_READ):
        return
    for name in FIRST_READ:
        (folder / name).unlink(missing_ok=True)
    sync(folder)
    for stale in (path for pattern in _WEIGHTS for path in folder.glob(pattern)):
        if not (whole / stale.name).is_file():
            stale.unlink()


def _move(moving: Path, folder: Path) -> None:
    files = sorted(path.relative_to(moving) for path in moving.rglob("*") if path.is_file())
    last = [file for file in files if str(file) in FIRST_READ]
    for file in (file for file in files if file not in last):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        os.replace(moving / file, folder / file)
    for parent in {(folder / file).parent for file in files}:
        sync(parent)
    for file in last:
        os.replace(moving / file, folder / file)


@contextmanager
def removed_on_failure(folder: Path, *, called: Path | None = None) -> Iterator[None]:
    """Deletes `folder` when the block cannot write, and says so in one `SaveError`, whichever library was writing."""
    try:
        yield
    except SaveError:  # of a folder within
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except Exception as error:
        number = _system_error(error)
        if number is None:
            raise
        shutil.rmtree(folder, ignore_errors=True)
        left = (
            f"a part of it could not be removed from {folder}" if folder.exists() else "nothing of it was left there"
        )
        raise SaveError(number, f"could not save to {called or folder}, and {left}: {error}") from error


def _system_error(error: Exception) -> int | None:
    """The number of the system's error for which a library could not write; None for any other exception."""
    if isinstance(error, OSError):
        return error.errno or errno.EIO
    if (number := system_error_number(error)) is not None:
        return number
    is_torch_save = isinstance(error, RuntimeError) and "inline_container" in str(error)
    return errno.EIO if is_torch_save or isinstance(error, SafetensorError) else None


def prepare_saving(folder: str | Path) -> None:
    """Finishes a save that was broken off, and tries all that `atomic_directory` needs, before hours are spent on what
    could not be saved.

    Raises:
        SaveError: when `folder` cannot be made or written to.
    """
    folder = Path(folder).resolve()
    finish_saving(folder)
    try:
        with made(folder):
            (folder / SCRATCH).mkdir()
            try:
                written = folder / SCRATCH / f"{SCRATCH}.txt"
                written.write_text("This file tries whether the folder can be written to.\n", encoding="utf-8")
                sync_files(folder / SCRATCH)
                os.replace(written, folder / written.name)
                (folder / written.name).unlink()
            finally:
                shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    except OSError as error:
        raise SaveError(error.errno, f"nothing can be saved to {folder}: {error}") from error


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """Makes a folder and those above it; of these, what is empty afterwards is removed again."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for path in missing:
            try:
                path.rmdir()
            except OSError:  # it holds something, as it should
                break


def sync_files(folder: Path) -> None:
    """Has everything in a folder reach the disk, which otherwise keeps names before contents when power fails."""
    for path in (folder, *folder.rglob("*")):
        sync(path)


def sync(path: Path) -> None:
    """The same of one file, or of the names in one folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

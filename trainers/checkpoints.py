"""Atomic checkpoints: an interrupted save leaves no checkpoint.

A checkpoint folder is complete if it has a file `complete.json` with the size and the digest of every other file. It
is written last, when all other files have reached the disk. A run that is killed while it saves leaves a folder
without this file, which is never resumed from, and which the next training deletes.

Sizes are checked often, because that is cheap; digests are checked when a run resumes from the checkpoint. Checkpoints
of the first versions list sizes alone.
"""

import errno
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from ..configuration.errors import DamagedCheckpointError, SaveError
from ..configuration.files import FIRST_READ, MOVING, WHOLE, atomic_file, made, system_error_number
from ..configuration.identity import file_digest

logger = logging.getLogger(__name__)

MARKER = "complete.json"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_PARTIAL = ".partial"  # the ending of unfinished checkpoints of earlier versions


def mark_complete(folder: str | Path) -> None:
    """Marks a checkpoint folder as complete, after all of its files were written."""
    folder = Path(folder)
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name != MARKER]
    sync_files(folder)
    listed = {
        str(file.relative_to(folder)): {"size": file.stat().st_size, "xxh3_128": file_digest(file)} for file in files
    }
    with atomic_file(folder / MARKER) as marker:
        marker.write_text(json.dumps(listed, indent=1), encoding="utf-8")
    sync(folder)


def is_complete(folder: str | Path) -> bool:
    """Whether a checkpoint folder is complete and its files have the sizes that were written."""
    folder = Path(folder)
    try:
        return all((folder / name).stat().st_size == size for name, (size, _) in _listed(folder).items())
    except (OSError, ValueError):
        return False


def check_undamaged(folder: str | Path) -> None:
    """Compares the files of a complete checkpoint with their digests.

    Raises:
        DamagedCheckpointError: if a file was changed or cannot be read.
    """
    folder, damaged = Path(folder), []
    for name, (_, digest) in _listed(folder).items() if is_complete(folder) else ():
        try:
            is_damaged = digest is not None and file_digest(folder / name) != digest
        except OSError:
            is_damaged = True
        if is_damaged:
            damaged.append(name)
    if damaged:
        raise DamagedCheckpointError(f"{folder} is damaged, and not what was saved: {', '.join(damaged)}")


def _is_damaged(folder: Path) -> bool:
    try:
        check_undamaged(folder)
    except DamagedCheckpointError:
        return True
    return False


def _listed(folder: Path) -> dict[str, tuple[int | None, str | None]]:
    """The entries of `complete.json`: file -> its size, and its digest if there is one.

    Raises:
        OSError, ValueError: if there is no such file, or it cannot be read.
    """
    listed: Any = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    if not isinstance(listed, dict):
        raise ValueError(f"{folder / MARKER} lists no files")
    entries = {name: entry if isinstance(entry, dict) else {"size": entry} for name, entry in listed.items()}
    return {name: (entry.get("size"), entry.get("xxh3_128")) for name, entry in entries.items()}


def checkpoints(output_dir: str | Path) -> list[Path]:
    """The checkpoint folders in `output_dir`, complete or not, oldest first."""
    by_step = [
        (int(match[1]), path)
        for path in Path(output_dir).glob("checkpoint-*")
        if (match := _CHECKPOINT.fullmatch(path.name))
    ]
    return [path for _, path in sorted(by_step)]


def has_checkpoint(output_dir: str | Path) -> bool:
    """Whether there is a complete checkpoint in `output_dir`. It may be damaged, which `newest_checkpoint` checks."""
    return any(is_complete(path) for path in checkpoints(output_dir))


def newest_checkpoint(output_dir: str | Path) -> Path | None:
    """The newest complete and undamaged checkpoint in `output_dir`; None if there is no complete checkpoint.

    Warnings name the damaged checkpoints that are skipped.

    Raises:
        DamagedCheckpointError: if all complete checkpoints are damaged.
    """
    damaged = []
    for path in reversed(checkpoints(output_dir)):
        if is_complete(path):
            try:
                check_undamaged(path)
                return path
            except DamagedCheckpointError as error:
                logger.warning("%s; it is skipped", error)
                damaged.append(error)
        elif (path / MARKER).is_file():
            logger.warning("%s was complete, and lacks files or has them in other sizes; it is skipped", path)
    if damaged:
        raise DamagedCheckpointError(
            f"{damaged[0]}. There is no other checkpoint to resume from: restore a copy of it, or delete it to start "
            "anew"
        )
    return None


def remove_torn_checkpoints(output_dir: str | Path, resumed: Path | None = None) -> list[Path]:
    """Deletes incomplete checkpoints, and damaged checkpoints that are newer than the resumed one, because a later run
    would take them for newer than what is saved next.

    Returns:
        The deleted folders.
    """
    folders = checkpoints(output_dir)
    torn = [path for path in folders if not is_complete(path)]
    if resumed in folders:
        newer = folders[folders.index(resumed) + 1 :]
        torn += [path for path in newer if path not in torn and _is_damaged(path)]
    torn += Path(output_dir).glob(f"checkpoint-*{_PARTIAL}")
    for path in torn:
        shutil.rmtree(path)
    return torn


# ---- Saving models ----
#
# Atomic updates of model folders: after an interrupted save, a folder holds the old model or can be completed.
#
# A model has many files, and no file system replaces several files at once. The folder itself cannot be exchanged
# either: it may be a mount point, a link to another disk or the working directory, its parent folder may be read-
# only, and it also holds checkpoints and reports. Therefore a save happens inside the folder, in four steps:
#
# 1. The files are written to `.saving` in the folder, and flushed to the disk.
# 2. `.saving` is renamed to `.saved`. From now on the new files are complete.
# 3. The files that loaders read first, `config.json` and `adapter_config.json`, are deleted from the folder, and so
#    are weights that the new model does not replace. `.saved` is renamed to `.moving`.
# 4. The new files are moved into the folder, `config.json` and `adapter_config.json` last.
#
# If the process is killed before step 3, the folder is unchanged. If it is killed in step 3 or 4, the folder has
# no configuration, so that nothing can be loaded from it; the next save or run into the folder begins with
# `finish_saving`, which does the remaining steps. The weights of one model are never beside the configuration of
# another.

SCRATCH = ".saving"
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")


@contextmanager
def atomic_directory(folder: str | Path) -> Iterator[Path]:
    """Yields a scratch folder; when the block ends without an error, all of its files move into `folder` together.

    After an error they are deleted. `atomic_folder` in `configuration.files` is for new folders; this is for folders
    that may hold other files.

    Args:
        folder: the folder, which is created if it is missing. Other files in it are kept, except the weights of
            another model.

    Raises:
        SaveError: if the block cannot write, or the files cannot be moved.
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
    """Completes an interrupted save: moves its files into the folder if all were written, or else deletes them.

    Returns:
        Whether there were files to move.

    Raises:
        SaveError: if they cannot be moved; they are kept.
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
            f"places ({error}). When that is mended, the same command (with --resume, if it has that) does the rest",
        ) from error
    return True


def _clear(folder: Path, whole: Path) -> None:
    """Deletes the configuration and the weights that must not be beside the new files, if those are a model's."""
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
    """Deletes `folder` if the block cannot write, whichever library was writing.

    Args:
        folder: the folder that the block writes to.
        called: the path that the error message names; by default `folder`.

    Raises:
        SaveError: if the block cannot write.
    """
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
    """The number of the system error because of which a library could not write; None for any other exception."""
    if isinstance(error, OSError):
        return error.errno or errno.EIO
    if (number := system_error_number(error)) is not None:
        return number
    is_torch_save = isinstance(error, RuntimeError) and "inline_container" in str(error)
    return errno.EIO if is_torch_save or isinstance(error, SafetensorError) else None


def prepare_saving(folder: str | Path) -> None:
    """Completes an interrupted save, and checks that `atomic_directory` will be able to write, before a long training
    begins.

    Raises:
        SaveError: if `folder` cannot be created or written to.
    """
    folder = Path(folder).resolve()
    finish_saving(folder)
    try:
        with made(folder):
            (folder / SCRATCH).mkdir()
            try:
                written = folder / SCRATCH / f"{SCRATCH}.txt"
                written.write_text("This file tests whether the folder can be written to.\n", encoding="utf-8")
                sync_files(folder / SCRATCH)
                os.replace(written, folder / written.name)
                (folder / written.name).unlink()
            finally:
                shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    except OSError as error:
        raise SaveError(error.errno, f"nothing can be saved to {folder}: {error}") from error


def sync_files(folder: Path) -> None:
    """Flushes all files of a folder to the disk. Otherwise a power failure may keep their names, but not their
    content."""
    for path in (folder, *folder.rglob("*")):
        sync(path)


def sync(path: Path) -> None:
    """Flushes one file, or the names in one folder, to the disk."""
    if sys.platform == "win32" and path.is_dir():  # it opens no folders
        return
    descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

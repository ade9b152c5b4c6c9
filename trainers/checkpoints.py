"""Atomic checkpoints: an interrupted save leaves no checkpoint.

A checkpoint folder is complete if it has a file `complete.json` with the size and the digest of every other file. It
is written last, when all other files have reached the disk. A run that is killed while it saves leaves a folder
without this file, which is never resumed from, and which the next training deletes.

Sizes are checked often, because that is cheap; digests are checked when a run resumes from the checkpoint. Checkpoints
of the first versions list sizes alone.
"""

import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any

from ..configuration.errors import DamagedCheckpointError
from ..configuration.files import atomic_file
from ..configuration.identity import file_digest
from .saving import sync, sync_files

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

    A warning names the damaged checkpoints that are skipped.

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

"""Checkpoints that are whole or do not count.

A checkpoint folder is complete when it holds `complete.json`, written last, with the size and the digest of every
other file, all of which have reached the disk before. A run that was killed while saving leaves a folder without it,
which is never resumed from and goes away with the next save.

Whether the sizes are right is cheap to tell and is asked often. The digests are compared when a run is about to go on
from the checkpoint. Checkpoints of earlier versions list sizes alone, and count as they did.
"""

import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any

import xxhash

from ..configuration.errors import DamagedCheckpointError
from ..configuration.files import atomic_file
from .saving import sync, sync_files

logger = logging.getLogger(__name__)

MARKER = "complete.json"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_PARTIAL = ".partial"  # the ending of unfinished checkpoints of earlier versions
_PIECE = 1 << 24


def mark_complete(folder: str | Path) -> None:
    """Declares that everything in `folder` has been written."""
    folder = Path(folder)
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name != MARKER]
    sync_files(folder)
    listed = {
        str(file.relative_to(folder)): {"size": file.stat().st_size, "xxh3_128": _digest(file)} for file in files
    }
    with atomic_file(folder / MARKER) as marker:
        marker.write_text(json.dumps(listed, indent=1), encoding="utf-8")
    sync(folder)


def is_complete(folder: str | Path) -> bool:
    """Whether `folder` was saved to its end and its files are as long as they were then."""
    folder = Path(folder)
    try:
        return all((folder / name).stat().st_size == size for name, (size, _) in _listed(folder).items())
    except (OSError, ValueError):
        return False


def check_undamaged(folder: str | Path) -> None:
    """
    Raises:
        DamagedCheckpointError: for a complete checkpoint with files that are not what was written, or cannot be read.
    """
    folder, damaged = Path(folder), []
    for name, (_, digest) in _listed(folder).items() if is_complete(folder) else ():
        try:
            is_damaged = digest is not None and _digest(folder / name) != digest
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
    """What `complete.json` says of each file: its size, and its digest where there is one.

    Raises:
        OSError, ValueError: when there is no such list.
    """
    listed: Any = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    if not isinstance(listed, dict):
        raise ValueError(f"{folder / MARKER} lists no files")
    entries = {name: entry if isinstance(entry, dict) else {"size": entry} for name, entry in listed.items()}
    return {name: (entry.get("size"), entry.get("xxh3_128")) for name, entry in entries.items()}


def _digest(file: Path) -> str:
    digest = xxhash.xxh3_128()
    with file.open("rb") as content:
        while piece := content.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def checkpoints(output_dir: str | Path) -> list[Path]:
    """The checkpoint folders in `output_dir`, complete or not, oldest first."""
    found = [
        (int(match[1]), path)
        for path in Path(output_dir).glob("checkpoint-*")
        if (match := _CHECKPOINT.fullmatch(path.name))
    ]
    return [path for _, path in sorted(found)]


def has_checkpoint(output_dir: str | Path) -> bool:
    """Whether a complete checkpoint is in `output_dir`; whether it can be resumed from, `newest_checkpoint` tells."""
    return any(is_complete(path) for path in checkpoints(output_dir))


def newest_checkpoint(output_dir: str | Path) -> Path | None:
    """The newest complete checkpoint in `output_dir` whose files are what was written, or None where there is no
    complete one; a warning names those that are passed over.

    Raises:
        DamagedCheckpointError: when all of them are damaged.
    """
    damaged = []
    for path in reversed(checkpoints(output_dir)):
        if is_complete(path):
            try:
                check_undamaged(path)
                return path
            except DamagedCheckpointError as error:
                logger.warning("%s; it is passed over", error)
                damaged.append(error)
    if damaged:
        raise DamagedCheckpointError(
            f"{damaged[0]}. There is no other checkpoint to go on from: put back a copy of it, or delete it to begin "
            "anew"
        )
    return None


def remove_torn_checkpoints(output_dir: str | Path, resumed: Path | None = None) -> list[Path]:
    """Deletes the checkpoint folders that were never completed and, of those newer than the one that is resumed, the
    damaged ones, which would be taken for newer than what is saved next. Returns what is gone."""
    found = checkpoints(output_dir)
    torn = [path for path in found if not is_complete(path)]
    if resumed in found:
        newer = found[found.index(resumed) + 1 :]
        torn += [path for path in newer if path not in torn and _is_damaged(path)]
    torn += Path(output_dir).glob(f"checkpoint-*{_PARTIAL}")
    for path in torn:
        shutil.rmtree(path)
    return torn

"""Checkpoints that are whole or do not count.

A checkpoint folder is complete when it holds `complete.json`, written last, with the size of every other file. A run
that was killed while saving leaves a folder without it, which is never resumed from and goes away with the next save.
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from ..processing.tokenizer_files import disk_errors

MARKER = "complete.json"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_PARTIAL = ".partial"


def mark_complete(folder: str | Path) -> None:
    """Declares that everything in `folder` has been written."""
    folder = Path(folder)
    sizes = {
        str(file.relative_to(folder)): file.stat().st_size for file in sorted(folder.rglob("*")) if file.is_file()
    }
    partial = folder / f"{MARKER}{_PARTIAL}"
    partial.write_text(json.dumps(sizes, indent=1), encoding="utf-8")
    os.replace(partial, folder / MARKER)


def is_complete(folder: str | Path) -> bool:
    """Whether `folder` was saved to its end and its files are as they were then."""
    folder = Path(folder)
    try:
        sizes = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def checkpoints(output_dir: str | Path) -> list[Path]:
    """The checkpoint folders in `output_dir`, complete or not, oldest first."""
    found = [
        (int(match[1]), path)
        for path in Path(output_dir).glob("checkpoint-*")
        if (match := _CHECKPOINT.fullmatch(path.name))
    ]
    return [path for _, path in sorted(found)]


def newest_checkpoint(output_dir: str | Path) -> Path | None:
    """The newest complete checkpoint in `output_dir`, or None."""
    return next((path for path in reversed(checkpoints(output_dir)) if is_complete(path)), None)


def remove_torn_checkpoints(output_dir: str | Path) -> list[Path]:
    """Deletes the checkpoint folders that were never completed, with their scratch folders, and returns them."""
    torn = [path for path in checkpoints(output_dir) if not is_complete(path)]
    torn += Path(output_dir).glob(f"checkpoint-*{_PARTIAL}")
    for path in torn:
        shutil.rmtree(path)
    return torn


@contextmanager
def written_whole(folder: str | Path) -> Iterator[Path]:
    """A scratch folder whose files move into `folder` when the block ends well, and vanish when it does not.

    Raises:
        OSError: when the block cannot write, with `folder` named.
    """
    folder = Path(folder)
    scratch = folder.with_name(f"{folder.name}{_PARTIAL}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        with removed_on_failure(scratch, called=folder):
            yield scratch
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copytree(scratch, folder, dirs_exist_ok=True, copy_function=os.replace)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def removed_on_failure(folder: Path, *, called: Path | None = None) -> Iterator[None]:
    """Deletes `folder` when the block cannot write, and says so in one `OSError`, whichever library was writing."""
    try:
        with disk_errors():
            yield
    except (OSError, SafetensorError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "inline_container" not in str(error):  # torch.save's own file format
            raise
        shutil.rmtree(folder, ignore_errors=True)
        number = getattr(error, "errno", None) or errno.EIO
        raise OSError(number, f"could not save to {called or folder}, and nothing was left there: {error}") from error

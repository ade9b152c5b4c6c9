"""The folder of an index: `lance/`, LanceDB's database, and `index.json`, which is written when it is complete.

What stands in a folder without `index.json` was left by a build that was killed; the next build removes it. LanceDB
itself makes each change of its table complete or leaves no trace of it.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..configuration.errors import SaveError, SearchIndexError
from ..configuration.files import atomic_file, remove_unfinished
from ..configuration.locks import LOCK, locked_folder

MANIFEST, DATABASE = "index.json", "lance"
_FORMAT = 2


def check_index(folder: Path) -> None:
    """Checks that a folder holds an index that this version reads.

    Raises:
        SearchIndexError: when the folder has none, a damaged one, or one of another version.
    """
    try:
        stated = json.loads((folder / MANIFEST).read_text("utf-8"))
        number, engine = int(stated["format"]), stated["engine"]
    except FileNotFoundError:
        raise SearchIndexError(
            f"{folder} is not an index: it has no {MANIFEST}; `babelens index build` makes one"
        ) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SearchIndexError(f"{folder / MANIFEST} is damaged: {error!r}") from error
    if number > _FORMAT:
        raise SearchIndexError(f"{folder} is an index of format {number}, which a later version of babelens reads")
    if engine != "lance":
        raise SearchIndexError(
            f"{folder} is an index of the former engine {engine}, which this version does not read: build it again by "
            "`babelens index build`, from the embeddings or the images that it was built from"
        )


def check_has_no_index(folder: Path) -> None:
    """Raises SaveError for a folder that has an index."""
    if (folder / MANIFEST).is_file():
        raise SaveError(f"{folder} has an index already: add to it, or choose another folder")


@contextmanager
def new_index_folder(folder: Path) -> Iterator[None]:
    """Locks a folder for an index to be built, and marks it as complete; after an error, nothing of it is left.

    Raises:
        SaveError: when the folder has an index or other files, and when another process writes to it.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked_folder(folder):
            check_has_no_index(folder)
            remove_unfinished(folder)
            if others := sorted({entry.name for entry in folder.iterdir()} - {LOCK, DATABASE}):
                raise SaveError(f"{folder} is not an empty folder; it has {', '.join(others[:3])}: choose another one")
            shutil.rmtree(folder / DATABASE, ignore_errors=True)
            try:
                yield
                with atomic_file(folder / MANIFEST) as path:
                    path.write_text(json.dumps({"format": _FORMAT, "engine": "lance"}), encoding="utf-8")
            except BaseException:
                shutil.rmtree(folder / DATABASE, ignore_errors=True)
                raise
    finally:
        if is_new and not any(folder.iterdir()):
            folder.rmdir()


def folder_bytes(folder: Path) -> int:
    """The size of the files of a folder, in which another process may write at the same time."""
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += os.stat(os.path.join(path, name)).st_size
    return size

"""The folder of an index: a file that states what belongs to it, and parts that are never changed.

    index/
        index.json         the engine, the model, and the names of the parts
        rows-000001-…/     `vectors.f16`, the vectors row by row, and `rows.arrow`, their ids and metadata
        deleted-000002-…   positions of deleted vectors (.npy)
        graph-000002-…     what an approximate engine searches

A change writes new parts first and `index.json` last, which replaces the earlier one in one step: until then the
earlier index is whole, after it the new one. Parts that `index.json` does not name are what a killed change left, or
what a later change has replaced; the next change removes them.
"""

import json
import logging
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..configuration.errors import SaveError, SearchIndexError
from ..configuration.files import atomic_file
from ..configuration.locks import LOCK, locked_folder
from ..inference.embedding_shards import EmbeddingsInfo
from .vector_index import IndexParameters, SearchSettings

logger = logging.getLogger(__name__)

MANIFEST = "index.json"
_FORMAT = 1
_PART = re.compile(r"(rows|deleted|graph)-\d{6}-[0-9a-f]{8}|\.unfinished-.*|lance")


@dataclass(frozen=True)
class Manifest:
    """What `index.json` states.

    Args:
        engine: the engine.
        info: the model, its fingerprint, and the width of the vectors.
        parameters: how the engine is built and searches.
        rows: the parts with vectors, each with the number of its rows.
        deleted: the part with the positions of deleted vectors.
        graph: the part that an approximate engine searches.
        change: how often the index has been changed.
    """

    engine: str
    info: EmbeddingsInfo
    parameters: IndexParameters
    rows: dict[str, int] = field(default_factory=dict)
    deleted: str | None = None
    graph: str | None = None
    change: int = 0

    def new_part(self, kind: str) -> str:
        """A name for a part of the next change, which no part has had before."""
        return f"{kind}-{self.change + 1:06d}-{secrets.token_hex(4)}"

    def parts(self) -> set[str]:
        """The parts that belong to the index."""
        return {*self.rows, *filter(None, (self.deleted, self.graph)), "lance"}


def has_index(folder: Path) -> bool:
    """Whether a folder has an `index.json`."""
    return (folder / MANIFEST).is_file()


def read_manifest(folder: Path) -> Manifest:
    """Reads `index.json`.

    Raises:
        SearchIndexError: when the folder has none, a damaged one, or one of a later version.
    """
    try:
        stated = json.loads((folder / MANIFEST).read_text("utf-8"))
        if stated["format"] != _FORMAT:
            raise SearchIndexError(f"{folder} is an index of format {stated['format']}, which a later version reads")
        del stated["format"]
        return Manifest(**stated | from_json(stated))
    except FileNotFoundError:
        raise SearchIndexError(
            f"{folder} is no index: it has no {MANIFEST}; `babelens index build` makes one"
        ) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, SearchIndexError):
            raise
        raise SearchIndexError(f"{folder / MANIFEST} is damaged: {error!r}") from error


def from_json(stated: dict[str, Any]) -> dict[str, Any]:
    """The model and the parameters of an index, from JSON."""
    parameters = dict(stated["parameters"])
    search = SearchSettings(**parameters.pop("search"))
    return {"info": EmbeddingsInfo(**stated["info"]), "parameters": IndexParameters(**parameters, search=search)}


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes `index.json`, by which a change takes effect, and removes the parts that belong to no index any more."""
    with atomic_file(folder / MANIFEST) as path:
        path.write_text(json.dumps({"format": _FORMAT, **asdict(manifest)}, indent=2), encoding="utf-8")
    _sweep(folder, manifest.parts())


def check_has_no_index(folder: Path) -> None:
    """Raises SaveError for a folder that has an index."""
    if has_index(folder):
        raise SaveError(f"{folder} has an index already: add to it, or choose another folder")


@contextmanager
def new_index_folder(folder: Path) -> Iterator[None]:
    """Locks a folder for an index to be built; after an error, nothing of it is left.

    Raises:
        SaveError: when the folder has an index or other files, and when another process writes to it.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked_folder(folder):
            check_has_no_index(folder)
            entries = [entry.name for entry in folder.iterdir() if entry.name != LOCK]
            if others := sorted(name for name in entries if not _PART.fullmatch(name)):
                raise SaveError(f"{folder} is no empty folder; it has {', '.join(others[:3])}: choose another one")
            _sweep(folder, set())
            try:
                yield
            except BaseException:
                _sweep(folder, set())
                raise
    finally:
        if is_new and not any(folder.iterdir()):
            folder.rmdir()


@contextmanager
def changed_index(folder: Path) -> Iterator[Manifest]:
    """Locks the folder of an index for a change, and yields what `index.json` states; after an error, parts that were
    written for the change are removed.

    Raises:
        SaveError: when another process writes to the index.
        SearchIndexError: as `read_manifest`.
    """
    read_manifest(folder)
    with locked_folder(folder):
        manifest = read_manifest(folder)
        _sweep(folder, manifest.parts())
        try:
            yield manifest
        except BaseException:
            _sweep(folder, read_manifest(folder).parts())
            raise


def folder_bytes(folder: Path) -> int:
    """The size of the files of a folder, in which another process may write at the same time."""
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += os.stat(os.path.join(path, name)).st_size
    return size


def _sweep(folder: Path, parts: set[str]) -> None:
    """Removes what is named like a part and does not belong to the index."""
    for entry in folder.iterdir():
        if _PART.fullmatch(entry.name) and entry.name not in parts:
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                with suppress(OSError):  # on Windows, one that is open; the next change removes it
                    entry.unlink()

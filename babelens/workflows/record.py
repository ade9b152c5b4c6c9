"""The record of a run's beginning, kept beside its checkpoints: its settings, and digests of its data.

A run that is resumed is compared with it: other data would be read with a vocabulary that was made for the first, or
would train another model.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, Image

from ..configuration.errors import ChangedRunError
from .recipe_file import abbreviated

logger = logging.getLogger(__name__)

RECORD = "run.json"
_IMAGES = 1000  # at most, of a corpus, that are read for its digest


@dataclass(frozen=True)
class RunRecord:
    """The settings and data with which a run began.

    Args:
        settings: the settings by dotted keys.
        data: the digests of the data by name.
    """

    settings: Mapping[str, Any]
    data: Mapping[str, str]

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        content = {"settings": self.settings, "data": self.data}
        (folder / RECORD).write_text(json.dumps(content, indent=1, default=str), encoding="utf-8")

    def check(self, folder: Path, *, may_change: Callable[[str], bool] = lambda key: False) -> None:
        """Compares this record with that of the run in `folder`.

        Args:
            folder: the run's folder of checkpoints.
            may_change: whether a setting may have changed; a warning names each that has.

        Raises:
            ChangedRunError: when data have changed, or settings that may not change.
        """
        path = folder / RECORD
        if not path.is_file():  # of an earlier version
            logger.warning("%s does not say with what data the run began: it is taken to be the same", folder)
            return
        began = json.loads(path.read_text(encoding="utf-8"))
        settings = json.loads(json.dumps(self.settings, default=str))
        advice = f"Bring back what it was, or begin anew in another folder than {folder.parent}"
        for name in sorted(began["data"].keys() | self.data.keys()):
            if began["data"].get(name) != self.data.get(name):
                raise ChangedRunError(f"{name}: the data are not those that the run began with. {advice}")
        for key in sorted(began["settings"].keys() | settings.keys()):
            then, now = began["settings"].get(key), settings.get(key)
            if then == now:
                continue
            if not may_change(key):
                raise ChangedRunError(
                    f"{key} was {abbreviated(then)} when the run began, and is {abbreviated(now)}. {advice}"
                )
            logger.warning("%s was %s when the run began, and goes on as %s", key, abbreviated(then), abbreviated(now))


def flattened(settings: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Nested mappings as one mapping with dotted keys; an empty mapping is a value."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        key = f"{where}.{name}" if where else str(name)
        flat |= flattened(value, key) if isinstance(value, Mapping) and value else {key: value}
    return flat


def corpus_digest(corpus: Dataset) -> str:
    """The digest of a corpus: of all texts, identifiers and labels, and of up to 1000 images, evenly spread; the same
    however the corpus is stored."""
    digest = _Digest()
    images = [name for name, feature in corpus.features.items() if isinstance(feature, Image)]
    others = [name for name in corpus.column_names if name not in images]
    table = corpus.select_columns(others).with_format("arrow")[:]
    for name in others:
        for chunk in table[name].chunks:
            digest.add_array(name, chunk)
    rows: Sequence[int] = np.linspace(0, len(corpus) - 1, min(len(corpus), _IMAGES), dtype=int).tolist()
    for name in images:
        stored = corpus.select_columns(name).select(rows).cast_column(name, Image(decode=False))
        for cell in stored[name]:
            digest.add(name, _encoded(cell))
    return digest.hexdigest()


def file_digest(path: str | Path) -> str:
    """The SHA-256 digest of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _encoded(cell: Mapping[str, Any] | None) -> bytes:
    """The bytes of an image as it is stored; none for one that cannot be read, which is refused when it is used."""
    if cell is None:
        return b""
    if cell["bytes"] is not None:
        return cell["bytes"]
    try:
        return Path(cell["path"]).read_bytes()
    except OSError:
        return b""


class _Digest:
    """The digest of Arrow arrays by their values: chunks and slices make no difference."""

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}

    def add(self, part: str, content: bytes | memoryview) -> None:
        self.parts.setdefault(part, hashlib.sha256()).update(content)

    def add_array(self, part: str, array: pa.Array) -> None:
        self.add(f"{part} valid", array.is_valid().to_numpy(zero_copy_only=False).tobytes())
        if pa.types.is_struct(array.type):
            for field, values in zip(array.type, array.flatten(), strict=True):
                self.add_array(f"{part}.{field.name}", values)
        elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
            self._add_numbers(f"{part} length", pc.list_value_length(array))
            self.add_array(f"{part}[]", array.flatten())
        elif pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
            self._add_numbers(f"{part} length", pc.binary_length(array))
            self.add(part, "".join(array.drop_null().to_pylist()).encode("utf-8", "surrogatepass"))
        elif pa.types.is_primitive(array.type):
            self._add_numbers(part, array)
        else:
            self.add(part, repr(array.to_pylist()).encode())

    def _add_numbers(self, part: str, numbers: pa.Array) -> None:
        self.add(part, pc.drop_null(numbers).to_numpy(zero_copy_only=False).astype(np.float64).tobytes())

    def hexdigest(self) -> str:
        lines = (f"{part} {hashing.hexdigest()}\n" for part, hashing in sorted(self.parts.items()))
        return hashlib.sha256("".join(lines).encode()).hexdigest()

"""The records of an input shard: an image or a text with its id and its metadata, in the order of the shard."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...configuration.errors import CorpusError
from ...data.corpus.corpus import image_id_of
from ...data.corpus.images import path_inside
from ...data.corpus.parquet_files import parquet_file
from ...data.corpus.tar_shards import IMAGES, opened, tar_samples
from ...data.corpus.text_files import numbered_lines, parse_object
from ...processing.text_inputs import shown_briefly
from .shards import InputShard

_ROWS_AT_ONCE = 256
LANGUAGE = "language"
_IDS = ("image_id", "id")


@dataclass(frozen=True)
class Record:
    """An image or a text of a source.

    Args:
        id: its id.
        place: what errors call it.
        image: the image as a cell {bytes, path} of a `datasets.Image` column, if there is one.
        metadata: further values, by their names; of a text, also `text` and `language`.
        defect: why it cannot be used, if that was seen while it was read.
    """

    id: str
    place: str
    image: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    defect: str | None = None


def records_of(shard: InputShard, names: list[str], what: str) -> Iterator[Record]:
    """The records of a shard.

    Args:
        shard: the shard.
        names: the metadata to read.
        what: `images` or `texts`.

    Raises:
        CorpusError: for a shard that is missing or damaged, or a record without an id.
    """
    readers: dict[str, Callable[[InputShard, list[str], str], Iterator[Record]]] = {
        "tar": _of_tar,
        "parquet": _of_parquet,
        "jsonl": _of_json_lines,
        "txt": _of_lines,
        "files": _of_files,
    }
    seen: set[str] = set()
    for record in readers[shard.kind](shard, names, what):
        if record.id in seen:
            raise CorpusError(f"{record.place}: the id {record.id!r} is given twice in this shard")
        seen.add(record.id)
        yield record


def parquet_schema(address: str) -> pa.Schema:
    """The columns of a parquet file.

    Raises:
        CorpusError: for a file that is missing or damaged.
    """
    with _parquet(address) as file:
        return file.schema_arrow


def _of_files(shard: InputShard, names: list[str], what: str) -> Iterator[Record]:
    for name in shard.files:
        path = os.path.join(shard.address, name)
        yield Record(name, path, {"bytes": None, "path": path})


def _of_tar(shard: InputShard, names: list[str], what: str) -> Iterator[Record]:
    for name, fields in tar_samples(shard.address):
        place = f"{shard.address} {name}"
        encoded = next((fields[ending] for ending in IMAGES if ending in fields), None)
        image = None if encoded is None else {"bytes": encoded, "path": None}
        metadata: dict[str, Any] = {}
        defect = None
        try:
            if "txt" in names and "txt" in fields:
                metadata["txt"] = fields["txt"].decode("utf-8")
            if names and "json" in fields:
                metadata |= parse_object(fields["json"].decode("utf-8"))
        except (UnicodeDecodeError, CorpusError) as error:
            defect = f"{place}: {error}"
        yield Record(name, place, image, metadata, defect)


def _of_parquet(shard: InputShard, names: list[str], what: str) -> Iterator[Record]:
    with _parquet(shard.address) as file:
        stored = file.schema_arrow.names
        needed = ["image"] if what == "images" else ["text"]
        if what == "texts" and LANGUAGE not in stored:
            names = [name for name in names if name != LANGUAGE]
        if missing := [name for name in (*needed, *names) if name not in stored]:
            raise CorpusError(
                f"{shard.address}: no column {', '.join(missing)}; there are {', '.join(stored)}. Images are in a "
                "column `image`, texts in a column `text`"
            )
        ids = next((name for name in _IDS if name in stored), None)
        optional = [name for name in (ids, LANGUAGE if what == "texts" else None) if name in stored]
        columns = list(dict.fromkeys([*needed, *optional, *names]))
        stem, row = Path(shard.address).stem, 0
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
            for values in batch.to_pylist():
                place = f"{shard.address} row {row}"
                image = values.pop("image") if what == "images" and "image" not in names else values.get("image")
                name = image_id_of(values[ids], place) if ids else f"{stem}:{row}"
                yield Record(name, place, _cell(image, place), values)
                row += 1


def _cell(image: Any, place: str) -> dict[str, Any] | None:
    """The cell {bytes, path} of an image in a parquet file, which is its bytes, or as `datasets` stores images."""
    if image is None or isinstance(image, bytes):
        return None if image is None else {"bytes": image, "path": None}
    if not isinstance(image, dict) or not {"bytes", "path"} & {*image}:
        raise CorpusError(
            f"{place}: {shown_briefly(image)} is no image: in a column `image` are the bytes of image files, or "
            "images as `datasets` stores them, {bytes, path}"
        )
    return {"bytes": image.get("bytes"), "path": image.get("path")}


def _of_json_lines(shard: InputShard, names: list[str], what: str) -> Iterator[Record]:
    folder, stem = Path(shard.address).parent, Path(shard.address).stem
    for line, text in _lines(shard):
        if not text or text.isspace():
            continue
        place = f"{shard.address} line {line}"
        try:
            values = parse_object(text)
        except CorpusError as error:
            raise CorpusError(f"{place}: {error}") from error
        given = next((values[name] for name in _IDS if name in values), None)
        if what == "texts":
            yield Record(f"{stem}:{line}" if given is None else image_id_of(given, place), place, None, values)
            continue
        name = values.get("file_name")
        if not isinstance(name, str) or not name.strip():
            raise CorpusError(f"{place}: no file_name")
        image = {"bytes": None, "path": str(path_inside(folder, name, place))}
        yield Record(image_id_of(name if given is None else given, place), place, image, values)


def _of_lines(shard: InputShard, names: list[str], what: str) -> Iterator[Record]:
    stem = Path(shard.address).stem
    for line, text in _lines(shard):
        yield Record(f"{stem}:{line}", f"{shard.address} line {line}", None, {"text": text})


def _lines(shard: InputShard) -> Iterator[tuple[int, str]]:
    """The lines of a shard with their numbers."""

    def opened() -> IO[bytes]:
        file = open(shard.address, "rb")  # noqa: SIM115  # closed by the one who reads the lines
        file.seek(shard.start)
        return file

    return islice(numbered_lines(opened, shard.address, shard.first_line), shard.lines)


@contextmanager
def _parquet(address: str) -> Iterator[pq.ParquetFile]:
    try:
        with opened(address) as file:
            yield parquet_file(file)
    except (OSError, pa.ArrowException) as error:
        raise CorpusError(f"{address}: {error}") from error

"""The images or texts that `babelens embed` reads, in pieces: each becomes one shard of the output.

tar shards            WebDataset's layout (`data.corpus.tar_shards`); each file is an input shard
parquet files         each file is an input shard
a .jsonl or .txt file cut into shards of some thousand lines
a folder of images    its files in the order of their paths, cut into shards of some thousand files
"""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from ..data.corpus.corpus import image_id_of
from ..data.corpus.images import path_inside, walk_images
from ..data.corpus.parquet_files import parquet_file
from ..data.corpus.tar_shards import IMAGES, files_named, opened, tar_samples
from ..data.corpus.text_files import numbered_lines, parse_object
from ..utils.errors import CorpusError
from ..utils.identity import remote_state, state_of

What = Literal["images", "texts"]
LANGUAGE = "language"
_KINDS: dict[str, tuple[str, ...]] = {"images": ("tar", "parquet", "jsonl"), "texts": ("parquet", "jsonl", "txt")}
_ACCEPTED = {
    "images": "tar shards, parquet files, a .jsonl file with a `file_name` in each line, or a folder of images",
    "texts": "parquet files, a .jsonl file with a `text` in each line, or a .txt file with a text in each line",
}
_IDS = ("image_id", "id")
_ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class Record:
    """An image or a text of a source.

    Args:
        id: its id.
        place: its name in error messages.
        image: the image as a cell {bytes, path} of a `datasets.Image` column, if there is one.
        metadata: further values, by their names; of a text, also `text` and `language`.
        defect: why it cannot be used, if that was seen while it was read.
    """

    id: str
    place: str
    image: dict[str, Any] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    defect: str | None = None


@dataclass(frozen=True)
class InputShard:
    """A piece of a source: a tar or parquet file at an `address`, or `records`."""

    index: int
    address: str
    records: tuple[Record, ...] = ()

    def __str__(self) -> str:
        return f"{self.address} from {self.records[0].place}" if self.records else self.address

    @property
    def state(self) -> str:
        """A digest of what it holds; files count by their names, sizes and times of modification."""
        digest = hashlib.blake2b(digest_size=12)
        for record in self.records:
            path = record.image and record.image["path"]
            there = (state_of(os.stat(path)) if os.path.exists(path) else None) if path else None
            content = json.dumps([record.id, record.metadata, there], sort_keys=True, default=str)
            digest.update(content.encode(errors="surrogatepass"))
        if not self.records:
            is_here = os.path.exists(self.address)
            facts = state_of(os.stat(self.address)) if is_here else remote_state(self.address)
            digest.update(os.fsencode(f"{os.path.basename(self.address)} {facts}"))
        return digest.hexdigest()


def input_shards(
    source: str, what: What, shard_size: int, skipped: dict[str, str] | None = None
) -> Iterator[InputShard]:
    """The shards of a source, in their order; lines and images of a folder are found while they are taken.

    Args:
        source: a folder, a file, a pattern such as `train-{00000..00999}.tar` or `*.parquet`, or an address that
            fsspec opens. A folder with tar files is read as tar shards, whatever else is in it: img2dataset,
            for one, leaves parquet files with their metadata beside them.
        what: whether images or texts are embedded.
        shard_size: number of lines, or of files of a folder of images, in a shard.
        skipped: receives the files of a folder that cannot be read, as in `walk_images`.
    """
    is_folder = Path(source).is_dir()
    for kind in _KINDS[what]:
        try:
            files = files_named(source, f".{kind}")
        except FileNotFoundError:
            raise CorpusError(f"{source}: no file matches this pattern") from None
        if files and kind in ("tar", "parquet"):
            return (InputShard(index, file) for index, file in enumerate(files))
        if files and not is_folder:  # a folder of images may have a metadata.jsonl
            return _cut(source, (record for file in files for record in _of_lines(Path(file), what)), shard_size)
    if what == "images" and is_folder:
        return _cut(source, _of_folder(Path(source), {} if skipped is None else skipped), shard_size)
    missing = "" if "://" in source or Path(source).exists() else ", and there is no such file or folder"
    raise CorpusError(f"{source}: {what} are read from {_ACCEPTED[what]}{missing}")


def _cut(source: str, records: Iterator[Record], shard_size: int) -> Iterator[InputShard]:
    index = 0
    while some := tuple(islice(records, shard_size)):
        yield InputShard(index, source, some)
        index += 1


def _of_folder(folder: Path, skipped: dict[str, str]) -> Iterator[Record]:
    for name, _ in walk_images(folder, skipped, utf8_names=True):
        path = str(folder / name)
        yield Record(Path(name).as_posix(), path, {"bytes": None, "path": path})


def _of_lines(file: Path, what: What) -> Iterator[Record]:
    for number, line in numbered_lines(lambda: file.open("rb"), file):
        place, name = f"{file} line {number}", f"{file.stem}:{number}"
        if file.suffix == ".txt":
            yield Record(name, place, None, {"text": line})
            continue
        if not line or line.isspace():
            continue
        try:
            values = parse_object(line)
        except CorpusError as error:
            raise CorpusError(f"{place}: {error}") from error
        image = None
        if what == "images":
            named = values.get("file_name")
            if not isinstance(named, str) or not named.strip():
                raise CorpusError(f"{place}: no file_name")
            name, image = named, {"bytes": None, "path": str(path_inside(file.parent, named, place))}
        given = next((values[each] for each in _IDS if each in values), None)
        yield Record(name if given is None else image_id_of(given, place), place, image, values)


def records_of(shard: InputShard, names: list[str], what: What) -> Iterator[Record]:
    """The records of a shard, with the metadata of these names."""
    records: Iterator[Record] = iter(shard.records)
    if not shard.records:
        read = _of_tar if shard.address.endswith(".tar") else _of_parquet
        records = read(shard.address, names, what)
    seen: set[str] = set()
    for record in records:
        if record.id in seen:
            raise CorpusError(f"{record.place}: the id {record.id!r} is given twice in this shard")
        seen.add(record.id)
        yield record


def parquet_schema(address: str) -> pa.Schema:
    """The columns of a parquet file."""
    try:
        with opened(address) as file:
            return parquet_file(file).schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise CorpusError(f"{address}: {error}") from error


def _of_tar(address: str, names: list[str], what: What) -> Iterator[Record]:
    for name, fields in tar_samples(address):
        place = f"{address} {name}"
        encoded = next((fields[ending] for ending in IMAGES if ending in fields), None)
        metadata: dict[str, Any] = {}
        defect = None
        try:
            if "txt" in names and "txt" in fields:
                metadata["txt"] = fields["txt"].decode("utf-8")
            if names and "json" in fields:
                metadata |= parse_object(fields["json"].decode("utf-8"))
        except (UnicodeDecodeError, CorpusError) as error:
            defect = f"{place}: {error}"
        yield Record(name, place, _cell(encoded, place), metadata, defect)


def _of_parquet(address: str, names: list[str], what: What) -> Iterator[Record]:
    stored = parquet_schema(address).names
    needed = "image" if what == "images" else "text"
    if missing := [name for name in (needed, *names) if name not in (*stored, LANGUAGE)]:
        raise CorpusError(
            f"{address}: no column {', '.join(missing)}; there are {', '.join(stored)}. Images are in a column "
            "`image`, texts in a column `text`"
        )
    ids = next((name for name in _IDS if name in stored), None)
    wanted = [needed, *([ids] if ids else []), *([LANGUAGE] if what == "texts" else []), *names]
    row = 0
    try:
        with opened(address) as file:
            columns = [name for name in dict.fromkeys(wanted) if name in stored]
            for batch in parquet_file(file).iter_batches(_ROWS_AT_ONCE, columns=columns):
                for values in batch.to_pylist():
                    place = f"{address} row {row}"
                    name = image_id_of(values[ids], place) if ids else f"{Path(address).stem}:{row}"
                    yield Record(name, place, _cell(values.get("image"), place), values)
                    row += 1
    except (OSError, pa.ArrowException) as error:
        raise CorpusError(f"{address}: {error}") from error


def _cell(image: Any, place: str) -> dict[str, Any] | None:
    """The cell {bytes, path} of an image, given as its bytes, or as `datasets` stores images; None without one."""
    if isinstance(image, bytes):
        return {"bytes": image, "path": None}
    if image is not None and not (isinstance(image, dict) and {"bytes", "path"} & {*image}):
        raise CorpusError(f"{place}: a column `image` must hold the bytes of image files, or {{bytes, path}}")
    cell = {name: (image or {}).get(name) for name in ("bytes", "path")}
    return cell if cell != {"bytes": None, "path": None} else None

"""The input shards of a source: each is embedded as one piece, and becomes one shard of the output.

tar shards            WebDataset's layout (`data.corpus.tar_shards`); each file is an input shard
parquet files         each file is an input shard
a .jsonl or .txt file cut into shards of some thousand lines
a folder of images    its files in the order of their paths, cut into shards of some thousand files
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from ...data.corpus.corpus import image_id_of
from ...data.corpus.image_files import walk_images
from ...data.corpus.images import path_inside
from ...data.corpus.parquet_files import parquet_file
from ...data.corpus.tar_shards import IMAGES, files_named, opened, tar_samples
from ...data.corpus.text_files import MAX_BYTES, numbered_lines, parse_object
from ...processing.text_inputs import shown_briefly
from ...utils.errors import CorpusError
from ...utils.identity import remote_state, state_of

_STATE = "; state "  # in an identity, between what a shard has and the state that it was in
Kind = Literal["tar", "parquet", "jsonl", "txt", "files"]
_KINDS: dict[str, tuple[Kind, ...]] = {"images": ("tar", "parquet", "jsonl"), "texts": ("parquet", "jsonl", "txt")}
_ACCEPTED = {
    "images": "tar shards, parquet files, a .jsonl file with a `file_name` in each line, or a folder of images",
    "texts": "parquet files, a .jsonl file with a `text` in each line, or a .txt file with a text in each line",
}


@dataclass(frozen=True)
class InputShard:
    """A piece of a source.

    Args:
        index: its position in the source, which the name of the output shard states.
        kind: how it is read.
        address: the file, or the folder of the image files; a path or, for tar and parquet, an address of fsspec.
        files: the names of the image files in that folder.
        first_line, lines: the number of its first line in the file, counted from 1, and how many lines it has.
        start: the position of its first byte in the file.
        size: bytes of its lines, without their ends.
        digest: a digest of these lines.
    """

    index: int
    kind: Kind
    address: str
    files: tuple[str, ...] = ()
    first_line: int = 1
    lines: int = 0
    start: int = 0
    size: int = 0
    digest: str = ""

    def __str__(self) -> str:
        if self.files:
            return f"{self.address} from {self.files[0]} to {self.files[-1]}"
        return f"{self.address} from line {self.first_line}" if self.lines else self.address

    @property
    def identity(self) -> str:
        """What the shard is made of, without the folder that the source lies in: which names or lines (`extent`), and
        their states: the sizes and times of modification of files, or what their store tells of them; the content of
        lines."""
        return f"{self.extent}{_STATE}{self._state()}"

    @property
    def extent(self) -> str:
        """Which names or lines it has."""
        name = os.path.basename(self.address)
        if self.files:
            names = b"".join(os.fsencode(file) + b"\0" for file in self.files)
            return f"{len(self.files)} files {_digest(names)}"
        if self.lines:
            return f"{name} byte {self.start}, {self.lines} lines of {self.size} bytes from line {self.first_line}"
        return name

    def _state(self) -> str:
        if self.files:
            return _digest(b"".join(_state_of(os.path.join(self.address, file)) for file in self.files))
        if self.lines:
            named = _digest(b"".join(map(_state_of, self._named_files()))) if self.kind == "jsonl" else ""
            return f"{self.digest} {named}".rstrip()
        if not os.path.exists(self.address):
            return remote_state(self.address)
        size, modified = state_of(os.stat(self.address))
        return f"{size} bytes, modified {modified}"

    def _named_files(self) -> Iterator[str]:
        """The paths of the images that its lines name."""
        with open(self.address, "rb") as file:
            file.seek(self.start)
            for line in islice(iter(partial(file.readline, MAX_BYTES), b""), self.lines):
                try:
                    name = json.loads(line)["file_name"] if b'"file_name"' in line else None
                except (ValueError, TypeError, KeyError):  # whoever reads the line says what is wrong
                    continue
                if isinstance(name, str) and "\0" not in name:
                    yield os.path.join(os.path.dirname(self.address), name)


def extent_of(identity: str) -> str:
    """Which names or lines an identity is of (`InputShard.extent`), whatever their state was."""
    return identity.partition(_STATE)[0]


def _state_of(path: str) -> bytes:
    try:
        return repr(state_of(os.stat(path))).encode()
    except (OSError, ValueError):
        return b"missing"


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def input_shards(
    source: str, what: Literal["images", "texts"], shard_size: int, skipped: dict[str, str] | None = None
) -> Iterator[InputShard]:
    """The shards of a source, in their order; a folder of images is walked through while they are taken.

    Args:
        source: a folder, a file, a pattern such as `train-{00000..00999}.tar` or `*.parquet`, or an address that
            fsspec opens. A folder with tar files is read as tar shards, whatever else is in it: img2dataset,
            for one, leaves parquet files with their metadata beside them.
        what: whether images or texts are embedded.
        shard_size: number of lines, or of files of a folder of images, in a shard.
        skipped: where the files of a folder that cannot be read are entered, as in `walk_images`.
    """
    for kind in _KINDS[what]:
        try:
            files = files_named(source, f".{kind}")
        except FileNotFoundError:
            raise CorpusError(f"{source}: no file matches this pattern") from None
        is_folder = Path(source).is_dir()
        if not files or (is_folder and kind in ("jsonl", "txt")):  # such as the metadata.jsonl of a folder of images
            continue
        cut = kind in ("jsonl", "txt")
        return _numbered(_cut_lines(files, kind, shard_size) if cut else (InputShard(0, kind, each) for each in files))
    if what == "images" and Path(source).is_dir():
        return _numbered(_cut_files(Path(source), shard_size, {} if skipped is None else skipped))
    missing = "" if "://" in source or Path(source).exists() else ", and there is no such file or folder"
    raise CorpusError(f"{source}: {what} are read from {_ACCEPTED[what]}{missing}")


def _numbered(shards: Iterator[InputShard]) -> Iterator[InputShard]:
    for index, shard in enumerate(shards):
        yield replace(shard, index=index)


def _cut_files(folder: Path, shard_size: int, skipped: dict[str, str]) -> Iterator[InputShard]:
    names = (Path(name).as_posix() for name, _ in walk_images(folder, skipped, utf8_names=True))
    while files := tuple(islice(names, shard_size)):
        yield InputShard(0, "files", str(folder), files)


def _cut_lines(files: list[str], kind: Kind, shard_size: int) -> Iterator[InputShard]:
    for address in files:
        try:
            with open(address, "rb") as file:
                start, line = 0, 1
                read = iter(partial(file.readline, MAX_BYTES), b"")
                # Without their ends, since lines that are added give one to the last line of the file.
                while lines := [each.rstrip(b"\r\n") for each in islice(read, shard_size)]:
                    size, digest = sum(map(len, lines)), _digest(b"\n".join(lines))
                    yield InputShard(0, kind, address, (), line, len(lines), start, size, digest)
                    start, line = file.tell(), line + len(lines)
        except OSError as error:
            raise CorpusError(f"{address}: {error.strerror}") from error


# ---- Their records: an image or a text with its id and its metadata, in the order of the shard ----

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
    """The columns of a parquet file."""
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

    def from_start() -> IO[bytes]:
        file = open(shard.address, "rb")  # noqa: SIM115  # closed by the one who reads the lines
        file.seek(shard.start)
        return file

    return islice(numbered_lines(from_start, shard.address, shard.first_line), shard.lines)


@contextmanager
def _parquet(address: str) -> Iterator[pq.ParquetFile]:
    try:
        with opened(address) as file:
            yield parquet_file(file)
    except (OSError, pa.ArrowException) as error:
        raise CorpusError(f"{address}: {error}") from error

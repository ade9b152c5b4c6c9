"""The input shards of a source: each is embedded as one piece, and becomes one shard of the output.

tar shards            WebDataset's layout (`data.corpus.tar_shards`); each file is an input shard
parquet files         each file is an input shard
a .jsonl or .txt file cut into shards of some thousand lines
a folder of images    its files in the order of their paths, cut into shards of some thousand files
"""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

from ...configuration.errors import CorpusError
from ...configuration.identity import remote_state, state_of
from ...data.corpus.tar_shards import files_named
from ...data.corpus.text_files import MAX_BYTES
from ..image_index import utf8_name, walk_images

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


def input_shards(source: str, what: Literal["images", "texts"], shard_size: int) -> Iterator[InputShard]:
    """The shards of a source, in their order; a folder of images is walked through while they are taken.

    Args:
        source: a folder, a file, a pattern such as `train-{00000..00999}.tar` or `*.parquet`, or an address that
            fsspec opens. A folder with tar files is read as tar shards, whatever else is in it: img2dataset,
            for one, leaves parquet files with their metadata beside them.
        what: whether images or texts are embedded.
        shard_size: number of lines, or of files of a folder of images, in a shard.

    Raises:
        CorpusError: for a source that is missing, or of another kind.
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
        return _numbered(_cut_files(Path(source), shard_size))
    missing = "" if "://" in source or Path(source).exists() else ", and there is no such file or folder"
    raise CorpusError(f"{source}: {what} are read from {_ACCEPTED[what]}{missing}")


def _numbered(shards: Iterator[InputShard]) -> Iterator[InputShard]:
    for index, shard in enumerate(shards):
        yield replace(shard, index=index)


def _cut_files(folder: Path, shard_size: int) -> Iterator[InputShard]:
    names = (utf8_name(path, folder) for path in walk_images(folder))
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

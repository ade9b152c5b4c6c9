"""The input shards of a source: each is embedded as one piece, and becomes one shard of the output.

tar shards            WebDataset's layout (`data.corpus.tar_shards`); each file is an input shard
parquet files         each file is an input shard
a .jsonl or .txt file cut into shards of some thousand lines
a folder of images    its files in the order of their paths, cut into shards of some thousand files
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

from ...configuration.errors import CorpusError
from ...data.corpus.tar_shards import files_named
from ...data.corpus.text_files import MAX_BYTES
from ..image_files import utf8_name, walk_images

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
    """

    index: int
    kind: Kind
    address: str
    files: tuple[str, ...] = ()
    first_line: int = 1
    lines: int = 0
    start: int = 0
    size: int = 0

    def __str__(self) -> str:
        if self.files:
            return f"{self.address} from {self.files[0]} to {self.files[-1]}"
        return f"{self.address} from line {self.first_line}" if self.lines else self.address

    @property
    def identity(self) -> str:
        """What the shard is made of, without the folder that the source lies in: names, and the size of a file or of
        its lines. Their content is not part of it."""
        name = os.path.basename(self.address)
        if self.files:
            digest = hashlib.blake2b(digest_size=12)
            for file in self.files:
                digest.update(os.fsencode(file) + b"\0")
            return f"{len(self.files)} files {digest.hexdigest()}"
        if self.lines:
            return f"{name} byte {self.start}, {self.lines} lines of {self.size} bytes from line {self.first_line}"
        return f"{name} {os.path.getsize(self.address)} bytes" if os.path.exists(self.address) else name


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
                while sizes := [len(each.rstrip(b"\r\n")) for each in islice(read, shard_size)]:
                    yield InputShard(0, kind, address, (), line, len(sizes), start, sum(sizes))
                    start, line = file.tell(), line + len(sizes)
        except OSError as error:
            raise CorpusError(f"{address}: {error.strerror}") from error

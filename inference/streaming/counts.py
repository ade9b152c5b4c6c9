"""What became of the records of a source: every one that was read is embedded, or was skipped for a reason.

The counts of an input shard lie in the file of its embeddings, so that a run that was killed counts nothing twice and
forgets nothing. Their sums stand in `counts.json`, and every skipped record in a file beside the shard.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ...configuration.errors import CorpusError
from ...configuration.files import atomic_file
from ..embedding_shards import shard_files

COUNTS = "counts.json"
_KEY = b"babelens.counts"
_READERS = 16  # files that are opened at a time; on a network, the time goes into waiting
_FILES_AT_ONCE = 1024


@dataclass
class Counts:
    """The counts of an input shard, or of several.

    Attributes:
        read: records that were read.
        embedded: records that were embedded.
        skipped: reason -> records that were left out.
        missing: column -> embedded records without a value in it.
        shards: number of shards.
    """

    read: int = 0
    embedded: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    shards: int = 1

    def check(self, place: object) -> None:
        """Checks that nothing was lost or counted twice.

        Raises:
            CorpusError: if the sum is wrong; the file was then changed after it was written.
        """
        if self.embedded + self.skipped.total() != self.read:
            raise CorpusError(
                f"{place}: {self.embedded:,} embedded and {self.skipped.total():,} skipped are not the "
                f"{self.read:,} that were read: delete the file, and run again"
            )


def as_metadata(counts: Counts, identity: str) -> dict[bytes, bytes]:
    """The counts of a shard for the metadata of its file, with what it is made of (`InputShard.identity`)."""
    return {_KEY: json.dumps(vars(counts) | {"identity": identity}, sort_keys=True).encode()}


def counts_in(file: Path) -> tuple[Counts, str]:
    """The counts in the file of a shard, and what it is made of.

    Raises:
        CorpusError: for a file that is damaged, or has no counts.
    """
    try:
        with pq.ParquetFile(file) as shard:
            stored = json.loads((shard.metadata.metadata or {})[_KEY])
            rows = shard.metadata.num_rows
        identity = stored.pop("identity")
        counts = Counts(**stored | {name: Counter(stored[name]) for name in ("skipped", "missing")})
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise CorpusError(
            f"{file} is damaged, or no shard of `babelens embed`; delete it, and run again: {error}"
        ) from error
    counts.check(file)
    if rows != counts.embedded:
        raise CorpusError(
            f"{file} has {rows:,} rows where {counts.embedded:,} were embedded: delete it, and run again"
        )
    return counts, identity


def counts_of(folder: Path) -> Iterator[tuple[Path, Counts, str]]:
    """The counts of every shard in a folder, with what the shard is made of."""
    files = shard_files(folder)
    with ThreadPoolExecutor(_READERS) as pool:
        for start in range(0, len(files), _FILES_AT_ONCE):
            some = files[start : start + _FILES_AT_ONCE]
            for file, (counts, identity) in zip(some, pool.map(counts_in, some), strict=True):
                yield file, counts, identity


def total(each: Iterable[Counts]) -> Counts:
    """The sums of counts."""
    sums = Counts(shards=0)
    for counts in each:
        sums.shards += counts.shards
        sums.read += counts.read
        sums.embedded += counts.embedded
        sums.skipped += counts.skipped
        sums.missing += counts.missing
    return sums


def write_counts(folder: Path) -> Counts:
    """Sums the counts of all shards in a folder, and writes them to `counts.json`."""
    sums = total(counts for _, counts, _ in counts_of(folder))
    sums.check(folder)
    with atomic_file(folder / COUNTS) as path:
        path.write_text(json.dumps(vars(sums), indent=2), encoding="utf-8")
    return sums


def skipped_file(shard: Path) -> Path:
    """The file that names the skipped records of a shard, with reasons: a JSON object in each line."""
    return shard.with_name(f"skipped-{shard.stem.removeprefix('shard-')}.jsonl")

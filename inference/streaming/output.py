"""The output folder of a run: its counts, which shards it has, whether they belong to the same run, and its end."""

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ...data.corpus.captions import enumeration
from ...data.corpus.image_files import skipped_line
from ...data.corpus.text_files import read_json_lines
from ...utils.errors import BadImageError, ChangedRunError, CorpusError
from ...utils.files import atomic_file, remove_unfinished
from ...utils.identity import is_same_model
from ..embedding_shards import EmbeddingsInfo, read_info, shard_file, shard_files, write_info
from .job import EmbeddingJob
from .shards import extent_of

logger = logging.getLogger(__name__)


# ---- What became of the records of a source ----
# Every record that was read is embedded, or was skipped for a reason.
#
# The counts of an input shard lie in the file of its embeddings, so that a run that was killed counts nothing twice
# and forgets nothing. Their sums stand in `counts.json`, and every skipped record in a file beside the shard.


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
        """Checks that nothing was lost or counted twice."""
        if self.embedded + self.skipped.total() != self.read:
            raise CorpusError(
                f"{place}: {self.embedded:,} embedded and {self.skipped.total():,} skipped are not the "
                f"{self.read:,} that were read: delete the file, and run again"
            )


def as_metadata(counts: Counts, identity: str) -> dict[bytes, bytes]:
    """The counts of a shard for the metadata of its file, with what it is made of (`InputShard.identity`)."""
    return {_KEY: json.dumps(vars(counts) | {"identity": identity}, sort_keys=True).encode()}


def counts_in(file: Path) -> tuple[Counts, str]:
    """The counts in the file of a shard, and what it is made of."""
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


# ---- The folder ----


def begin(folder: Path, info: EmbeddingsInfo) -> None:
    """Prepares an output folder: a new one, or one that a run with the same model and settings has begun."""
    remove_unfinished(folder)
    if shard_files(folder):
        check_info(folder, info)
    else:
        write_info(folder, info)


def check_info(folder: Path, info: EmbeddingsInfo) -> None:
    """Checks that the embeddings in a folder are of this model and these settings."""
    stored = read_info(folder)
    if "-" not in stored.fingerprint and info.fingerprint.startswith(f"{stored.fingerprint}-"):
        raise ChangedRunError(
            f"{folder} was begun by an earlier version of babelens, which did not record the configuration of the "
            "model: choose another folder"
        )
    if not is_same_model(stored.fingerprint, info.fingerprint, str(folder)):
        raise ChangedRunError(
            f"{folder} holds embeddings of another model, {stored.model}, whose weights, configuration or "
            f"processor are not those of {info.model}: choose another folder"
        )
    there, here = asdict(stored) | stored.settings, asdict(info) | info.settings
    ignored = {"model", "settings", "fingerprint"}  # the folder of a model may be moved
    changed = [name for name in {**there, **here} if name not in ignored and there.get(name) != here.get(name)]
    if changed:
        told = ", ".join(f"{name} {there.get(name)} instead of {here.get(name)}" for name in changed)
        raise ChangedRunError(
            f"{folder} was begun with other settings ({told}): repeat them, or choose another folder"
        )


def missing_shards(job: EmbeddingJob) -> list[int]:
    """The indices of the input shards that have no output shard. An output shard whose files or lines have changed
    since, under the same names, is deleted with a warning, and missing.
    """
    done = counts_of(job.output)
    present = next(done, None)
    missing, outdated = list[int](), list[Path]()
    for shard in job.shards():
        if present is None or present[0] != shard_file(job.output, shard.index):
            missing.append(shard.index)
            continue
        file, _, identity = present
        if identity != shard.identity and extent_of(identity) == shard.extent:
            outdated.append(file)
            missing.append(shard.index)
        elif identity != shard.identity:
            raise ChangedRunError(
                f"{file} was made of {extent_of(identity)}, where {job.source} now has {shard.extent}: files "
                "were added, removed or changed. Choose another folder, or bring them back"
            )
        present = next(done, None)
    if present is not None:
        raise ChangedRunError(f"{present[0]} belongs to no shard of {job.source}: choose another folder")
    if outdated:
        logger.warning(
            "%d shards of %s were made of files that have changed since, such as %s: they are embedded again",
            len(outdated),
            job.output,
            outdated[0].name,
        )
    for file in outdated:  # when the whole source is known to be the same
        file.unlink()
    return missing


def finish(job: EmbeddingJob, failed: list[str]) -> Counts:
    """Writes the counts of all shards.

    Args:
        job: the settings.
        failed: the errors of shards that could not be read.
    """
    remove_unfinished(job.output)
    sums = write_counts(job.output)
    if failed:
        raise CorpusError(
            f"{len(failed)} of {len(failed) + sums.shards} shards could not be read, the others are complete; mend "
            f"them and run again. {enumeration(failed, shown=3)}"
        )
    if sums.skipped and not sums.embedded:
        files = filter(Path.exists, map(skipped_file, shard_files(job.output)))
        reasons = (record["reason"] for file in files for _, record in read_json_lines(file))
        raise BadImageError(f"none of {sums.read:,} images can be read. {enumeration([*islice(reasons, 3)])}")
    skipped: dict[str, str] = {}
    listed = sum(len(shard.files) for shard in job.shards(skipped))
    if skipped:
        logger.warning("%s", skipped_line(skipped, listed))
    return sums

"""The output folder of a run: which shards it has, whether they belong to the same run, and its end."""

import logging
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from ...configuration.errors import ChangedRunError, CorpusError
from ...configuration.files import remove_unfinished
from ...configuration.identity import is_same_model
from ...data.corpus.captions import enumeration
from ...data.corpus.images import refuse_mostly_bad
from ...data.corpus.text_files import read_json_lines
from ..embedding_shards import EmbeddingsInfo, read_info, shard_file, shard_files, write_info
from .counts import Counts, counts_of, skipped_file, write_counts
from .job import EmbeddingJob
from .shards import extent_of

logger = logging.getLogger(__name__)


def begin(folder: Path, info: EmbeddingsInfo) -> None:
    """Prepares an output folder: a new one, or one that a run with the same model and settings has begun.

    Raises:
        ChangedRunError: for embeddings of another model, or with other settings.
        SaveError: if the folder cannot be written.
    """
    remove_unfinished(folder)
    if shard_files(folder):
        check_info(folder, info)
    else:
        write_info(folder, info)


def check_info(folder: Path, info: EmbeddingsInfo) -> None:
    """Checks that the embeddings in a folder are of this model and these settings.

    Raises:
        ChangedRunError: if they are not.
        CorpusError: for a folder of other embeddings, or a damaged one.
    """
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

    Raises:
        ChangedRunError: if an output shard was made of other files or lines than its input shard has, or has none.
        CorpusError: for a damaged output shard.
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

    Raises:
        CorpusError: if there are any; the other shards are complete.
        BadImageError: if most images are bad.
    """
    remove_unfinished(job.output)
    sums = write_counts(job.output)
    if failed:
        raise CorpusError(
            f"{len(failed)} of {len(failed) + sums.shards} shards could not be read, the others are complete; mend "
            f"them and run again. {enumeration(failed, shown=3)}"
        )
    files = filter(Path.exists, map(skipped_file, shard_files(job.output)))
    reasons = (record["reason"] for file in files for _, record in read_json_lines(file))
    refuse_mostly_bad(list(islice(reasons, 4)), sums.read, sums.skipped.total())
    return sums

"""Embeddings of images and texts as files, for `babelens embed`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import typer

from ...configuration.defaults import Precision
from ...configuration.errors import CorpusError
from ...configuration.files import atomic_file
from ...configuration.languages import normalize_language
from ...configuration.locks import locked_path
from ...data.corpus.images import refuse_mostly_bad
from ...data.corpus.text_files import read_texts
from ...inference.autocasting import autocasting
from ...inference.embedder import Embedder
from ...inference.image_files import utf8_name, walk_images
from ...inference.image_index import ImageIndex
from ...inference.lookahead import spare_threads
from ...inference.streaming.cluster import embed_on_ray
from ...inference.streaming.columns import parse_columns
from ...inference.streaming.counts import Counts
from ...inference.streaming.job import EmbeddingJob
from ...inference.streaming.machine import distributed_state, embed_source
from ...processing.text_inputs import default_language
from ..options import split_tags
from .models import load_embedder

_MOST_WORKERS = 8  # threads; more of them wait for each other


def embed_images(
    embedder: Embedder, folder: Path, output: Path, *, precision: Precision, skip_bad_images: bool
) -> None:
    """Writes the embeddings of all images in a folder; names the images that were left out on the error stream."""
    with locked_path(output), _computing_in(precision, embedder):
        _embed_images(embedder, folder, output, skip_bad_images)


def _embed_images(embedder: Embedder, folder: Path, output: Path, skip_bad_images: bool) -> None:
    index = ImageIndex.of_folder(embedder, folder, skip_bad_images=skip_bad_images)
    refuse_mostly_bad([*index.skipped.values()], len(index.skipped) + len(index.paths))
    for reason in index.skipped.values():
        typer.echo(f"left out: {reason}", err=True)
    _write(output, {"file": [path.relative_to(folder).as_posix() for path in index.paths]}, index.embeddings)


def embed_texts(
    embedder: Embedder, file: Path, language: str | None, output: Path, *, precision: Precision, task: str | None
) -> None:
    """Writes the embeddings of the lines of a text file, by the head of a task if one is given."""
    lines = read_texts(file)
    if not lines:
        raise CorpusError(f"{file} holds no text")
    language = default_language(embedder.processor) if language is None else normalize_language(language)
    columns = {"text": lines, "language": [language] * len(lines)}
    with locked_path(output), _computing_in(precision, embedder):
        _write(output, columns, embedder.encode_text(lines, language=language, task=task))


def embed_shards(
    model: str,
    job: EmbeddingJob,
    columns: str | None,
    *,
    precision: Precision,
    workers: int | None,
    on_ray: bool,
    address: str | None,
    **loading: Any,
) -> None:
    """Embeds a source into a folder of shards.

    Args:
        model: the model.
        job: what to embed; `columns`, `precision` and `workers` are filled in here.
        columns: the option --columns.
        precision: the option --precision; on Ray not `auto`.
        workers: the option --workers; by default, a thread for each core that this process may use, at most 8.
        on_ray: whether to use the machines of a Ray cluster.
        address: the address of that cluster.
        loading: further arguments of `Embedder.from_pretrained`.
    """
    language = None if job.language is None else normalize_language(job.language)
    named = parse_columns(split_tags(columns or ""))
    threads = max(1, spare_threads(_MOST_WORKERS, beside=0)) if workers is None else workers
    job = replace(job, language=language, columns=named, workers=threads)
    if on_ray:
        counts: Counts | None = embed_on_ray(model, replace(job, precision=precision), address=address, **loading)
    else:
        state = distributed_state()
        embedder = load_embedder(model, device=state and state.device, **loading)
        try:
            counts = embed_source(embedder, replace(job, precision=_chosen(precision, embedder)), model=model)
        finally:
            if state is not None:
                state.destroy_process_group()
    if counts is not None:
        _tell(counts, job)


def _chosen(precision: Precision, embedder: Embedder) -> str:
    """The option --precision, with `auto` decided for the device of the model."""
    if precision != "auto":
        return precision
    from ...trainers.precision import fastest_precision

    return fastest_precision(embedder.model.device.type).name


def _computing_in(precision: Precision, embedder: Embedder) -> torch.autocast:
    return autocasting(embedder.model.device, _chosen(precision, embedder))


def _tell(counts: Counts, job: EmbeddingJob) -> None:
    left_out = "".join(f"; left out: {number:,} with {kind}" for kind, number in sorted(counts.skipped.items()))
    typer.echo(f"{counts.embedded:,} of {counts.read:,} {job.what} embedded{left_out}: {job.output}", err=True)
    for column, number in sorted(counts.missing.items()):
        typer.echo(f"{number:,} of them have no {column}", err=True)


def check_names(folder: Path) -> None:
    """Refuses a file name that is not UTF-8, which no column of text can hold, before anything is encoded.

    Raises:
        CorpusError: for such a name.
    """
    for path in walk_images(folder):
        utf8_name(path, folder)


def _write(output: Path, columns: dict[str, list[str]], embeddings: np.ndarray) -> None:
    embeddings = np.ascontiguousarray(embeddings)
    with atomic_file(output) as path:
        if output.suffix == ".npy":
            with path.open("wb") as file:  # numpy's own writing does not report a full disk
                np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(embeddings))
                file.write(embeddings.data)
        else:
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(embeddings.reshape(-1)), embeddings.shape[1])
            pq.write_table(pa.table({**columns, "embedding": vectors}), path)
    typer.echo(f"{len(embeddings)} embeddings of {embeddings.shape[1]} dimensions: {output}", err=True)

"""`babelens embed`: the embeddings of images or texts as a file or as a folder of shards, for other programs."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..utils.defaults import Precision
from ..utils.errors import CorpusError
from ..utils.files import atomic_file
from ..utils.languages import normalize_language
from .options import BatchSize, Model, TextTask, TruncateDim, TrustRemoteCode, split_tags
from .starting import begin_work

if TYPE_CHECKING:
    import numpy as np
    import torch

    from ..inference.embedder import Embedder
    from ..inference.streaming.job import EmbeddingJob
    from ..inference.streaming.output import Counts

_FORMATS = (".npy", ".parquet")
_SHARDS = "Folders of shards"


def embed(
    model: Model,
    output: Annotated[
        Path,
        typer.Option(
            help="Where to write. `.parquet`: the columns `file`, or `text` and `language`, and `embedding`. "
            "`.npy`: the embeddings alone, one row each; images in the order of their paths, texts in the order of "
            "their lines. A name without an ending: a folder of parquet shards with `id`, `embedding` and the columns "
            "of --columns, which an interrupted run goes on with, and which need not fit in memory.",
        ),
    ],
    images: Annotated[
        str | None,
        typer.Option(
            help="A folder of images, searched with its subfolders. For a folder of shards also tar shards "
            "(`train-{000..099}.tar`), parquet files with a column `image`, or a `.jsonl` with a `file_name` in each "
            "line.",
        ),
    ] = None,
    texts: Annotated[
        str | None,
        typer.Option(
            help="A text file in UTF-8 with one text per line and no empty line. For a folder of shards also parquet "
            "files or a `.jsonl` with `text` and `language`."
        ),
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="The language of texts that come without one, as a BCP-47 tag.")
    ] = None,
    task: TextTask = None,
    batch_size: BatchSize = 64,
    truncate_dim: TruncateDim = None,
    precision: Annotated[
        Precision,
        typer.Option(
            help="The number format of the computation. `bfloat16` takes about half of the time where the hardware "
            "multiplies it, and changes embeddings in their third digit; `auto` is `bfloat16` there and `float32` "
            "elsewhere.",
        ),
    ] = "float32",
    trust_remote_code: TrustRemoteCode = False,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Metadata to keep, from the JSON or the columns beside an image, such as `url,width:int`. Types are "
            "`text`, `int`, `float` and `bool`; by default those of parquet files, otherwise text.",
            rich_help_panel=_SHARDS,
        ),
    ] = None,
    dtype: Annotated[
        Literal["float16", "float32"] | None,
        typer.Option(help="The number format of the file; by default float16.", rich_help_panel=_SHARDS),
    ] = None,
    shard_size: Annotated[
        int | None,
        typer.Option(
            help="Images of a folder, or lines of a file, in a shard; by default 10,000. Every tar or parquet file is "
            "a shard.",
            min=1,
            rich_help_panel=_SHARDS,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Threads that decode images while the model encodes others; by default one for each processor core, "
            "at most 8.",
            min=0,
            rich_help_panel=_SHARDS,
        ),
    ] = None,
    engine: Annotated[
        Literal["local", "ray"],
        typer.Option(
            help="`local`: this machine, one process or under torchrun several. `ray`: a Ray cluster.",
            rich_help_panel=_SHARDS,
        ),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            help="The address of the Ray cluster, such as `auto`; by default this machine becomes one.",
            rich_help_panel=_SHARDS,
        ),
    ] = None,
) -> None:
    """Write the embeddings of images or of texts: vectors of length 1, whose dot product is their cosine.

    Embeddings of one model can be compared with each other: a text in any language with an image, or with a text in
    another language. `babelens index build` makes a search index of millions from them.
    """
    if (images is None) == (texts is None):
        raise typer.BadParameter("give either --images or --texts")
    if task and texts is None:
        raise typer.BadParameter("images have no head for each task", param_hint="--task")
    if language and texts is None:
        raise typer.BadParameter("--texts and --language go together: images have no language")
    if precision == "auto" and engine == "ray":
        raise typer.BadParameter("its machines may differ: name the precision", param_hint="--precision")
    if address and engine != "ray":
        raise typer.BadParameter("there is an address with --engine ray alone", param_hint="--address")
    if output.suffix:
        of_shards: dict[str, object] = {
            "columns": columns,
            "dtype": dtype,
            "shard-size": shard_size,
            "workers": workers,
        }
        _check_file(output, images, texts, of_shards | {"engine": None if engine == "local" else engine})
    elif output.is_file():
        raise typer.BadParameter(f"{output} is a file: shards are written to a folder", param_hint="--output")
    from ..inference.streaming.job import EmbeddingJob

    begin_work()
    from .inputs import load_embedder

    loading: dict[str, Any] = {"batch_size": batch_size, "draft_jpegs": True, "truncate_dim": truncate_dim}
    loading["trust_remote_code"] = trust_remote_code
    if not output.suffix:
        job = EmbeddingJob(
            source=images or texts or "",
            output=output,
            what="images" if images else "texts",
            dtype=dtype or "float16",
            shard_size=shard_size or 10_000,
            language=language,
            task=task,
        )
        embed_shards(
            model,
            job,
            columns,
            precision=precision,
            workers=workers,
            on_ray=engine == "ray",
            address=address,
            **loading,
        )
        return
    embedder = load_embedder(model, **loading)
    if images:
        embed_images(embedder, Path(images), output, precision=precision)
    elif texts:
        embed_texts(embedder, Path(texts), language, output, precision=precision, task=task)


def _check_file(output: Path, images: str | None, texts: str | None, of_shards: dict[str, object]) -> None:
    """Checks the options of an output that is one file."""
    if output.suffix not in _FORMATS:
        raise typer.BadParameter(
            f"{output.name}: the name must end in {' or '.join(_FORMATS)}, or have no ending for a folder of shards",
            param_hint="--output",
        )
    if output.is_dir():
        raise typer.BadParameter(f"{output} is a folder", param_hint="--output")
    if given := [name for name, value in of_shards.items() if value is not None]:
        raise typer.BadParameter(
            f"this option is for folders of shards: give --output a name without {output.suffix}",
            param_hint=f"--{given[0]}",
        )
    if images and not Path(images).is_dir():
        raise typer.BadParameter(
            f"there is no folder {images}; other sources are embedded into a folder of shards", param_hint="--images"
        )
    if texts and (not Path(texts).exists() or Path(texts).is_dir()):  # a pipe will do
        raise CorpusError(f"No file {texts} here")


_MOST_WORKERS = 8  # threads; more of them wait for each other


def embed_images(embedder: "Embedder", folder: Path, output: Path, *, precision: Precision) -> None:
    """Writes the embeddings of all images in a folder."""
    from ..inference.image_index import ImageIndex
    from ..utils.locks import locked_path

    with locked_path(output), _computing_in(precision, embedder):
        index = ImageIndex.of_folder(embedder, folder, utf8_names=output.suffix == ".parquet")
        _write(output, {"file": [path.relative_to(folder).as_posix() for path in index.paths]}, index.embeddings)


def embed_texts(
    embedder: "Embedder", file: Path, language: str | None, output: Path, *, precision: Precision, task: str | None
) -> None:
    """Writes the embeddings of the lines of a text file, by the head of a task if one is given."""
    from ..data.corpus.text_files import read_texts
    from ..processing.text_inputs import default_language
    from ..utils.locks import locked_path

    lines = read_texts(file)
    if not lines:
        raise CorpusError(f"{file} holds no text")
    language = default_language(embedder.processor) if language is None else normalize_language(language)
    columns = {"text": lines, "language": [language] * len(lines)}
    with locked_path(output), _computing_in(precision, embedder):
        _write(output, columns, embedder.encode_text(lines, language=language, task=task))


def embed_shards(
    model: str,
    job: "EmbeddingJob",
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
    from ..inference.lookahead import spare_threads
    from ..inference.streaming.cluster import embed_on_ray
    from ..inference.streaming.job import parse_columns
    from ..inference.streaming.worker import distributed_state, embed_source
    from .inputs import load_embedder

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


def _chosen(precision: Precision, embedder: "Embedder") -> str:
    """The option --precision, with `auto` decided for the device of the model."""
    if precision != "auto":
        return precision
    from ..trainers.precision import fastest_precision

    return fastest_precision(embedder.model.device.type).name


def _computing_in(precision: Precision, embedder: "Embedder") -> "torch.autocast":
    from ..modeling.encoding import autocasting

    return autocasting(embedder.model.device, _chosen(precision, embedder))


def _tell(counts: "Counts", job: "EmbeddingJob") -> None:
    left_out = "".join(f"; left out: {number:,} with {kind}" for kind, number in sorted(counts.skipped.items()))
    typer.echo(f"{counts.embedded:,} of {counts.read:,} {job.what} embedded{left_out}: {job.output}", err=True)
    for column, number in sorted(counts.missing.items()):
        typer.echo(f"{number:,} of them have no {column}", err=True)


def _write(output: Path, columns: dict[str, list[str]], embeddings: "np.ndarray") -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

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

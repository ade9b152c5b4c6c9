"""`babelens embed`: the embeddings of images or texts as a file or as a folder of shards, for other programs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..configuration.defaults import Precision
from .options import BatchSize, Model, SkipBadImages, TextTask, TrustRemoteCode, WholeJpegs

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
    skip_bad_images: SkipBadImages = False,
    whole_jpegs: WholeJpegs = False,
    batch_size: BatchSize = 64,
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
    for option, is_given in {"--skip-bad-images": skip_bad_images, "--whole-jpegs": whole_jpegs}.items():
        if is_given and images is None:
            raise typer.BadParameter("there are no images among texts", param_hint=option)
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
    from .jobs.embed import check_names, embed_images, embed_shards, embed_texts
    from .jobs.models import load_embedder

    if not output.suffix:
        job = EmbeddingJob(
            source=images or texts or "",
            output=output,
            what="images" if images else "texts",
            dtype=dtype or "float16",
            shard_size=shard_size or 10_000,
            skip_bad=skip_bad_images,
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
            batch_size=batch_size,
            draft_jpegs=not whole_jpegs,
            trust_remote_code=trust_remote_code,
        )
        return
    if images and output.suffix == ".parquet":
        check_names(Path(images))
    embedder = load_embedder(
        model, batch_size=batch_size, draft_jpegs=not whole_jpegs, trust_remote_code=trust_remote_code
    )
    if images:
        embed_images(embedder, Path(images), output, precision=precision, skip_bad_images=skip_bad_images)
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
        raise typer.BadParameter(f"there is no file {texts}", param_hint="--texts")

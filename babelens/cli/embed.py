"""`babelens embed`: writes embeddings of images or texts to a folder of parquet files."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..utils.languages import normalize_language
from .common import BatchSize, Model, TrustRemoteCode, begin_work, check_source, split_tags


def embed(
    model: Model,
    output: Annotated[
        Path, typer.Option(help="A folder, new or to be completed, that gets parquet files.", file_okay=False)
    ],
    images: Annotated[
        str | None,
        typer.Option(
            help="A folder, tar files (`{000..099}.tar`), parquet files, or a `.jsonl` file.", callback=check_source
        ),
    ] = None,
    texts: Annotated[
        str | None,
        typer.Option(
            help="A `.txt` file (one text per line), parquet files, or a `.jsonl` file.", callback=check_source
        ),
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="The language of texts that state none, as a BCP-47 tag.")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Metadata to keep, such as `url,width:int`.")] = None,
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"], typer.Option(help="The number format of the computation.")
    ] = "float32",
    ray: Annotated[
        str | None, typer.Option(help="Embed by Ray: `local`, `auto`, or the address of a cluster.")
    ] = None,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Write the embeddings of images or of texts: vectors of length 1, whose dot product is their cosine.

    `babelens embed runs/mural --images photos --output photos-embedded`

    `babelens index` makes a search index from the embeddings of images. Repeat the command to complete a folder.
    """
    if (images is None) == (texts is None):
        raise typer.BadParameter("give either --images or --texts")
    if language and texts is None:
        raise typer.BadParameter("--language requires --texts: images have no language", param_hint="--language")
    language = None if language is None else normalize_language(language)
    if output.suffix in (".npy", ".parquet"):
        raise typer.BadParameter(
            "embeddings are written to a folder; name it without an ending", param_hint="--output"
        )
    begin_work()
    from ..inference.embed import EmbeddingJob, embed_on_ray, embed_source, parse_columns
    from ..inference.embedder import Embedder

    loading: dict[str, Any] = {"batch_size": batch_size, "draft_jpegs": True, "trust_remote_code": trust_remote_code}
    job = EmbeddingJob(
        source=images or texts or "",
        output=output,
        what="images" if images else "texts",
        columns=parse_columns(split_tags(columns or "")),
        precision=precision,
        language=language,
    )
    if ray:
        counts = embed_on_ray(model, job, address=None if ray == "local" else ray, **loading)
    else:
        counts = embed_source(Embedder.from_pretrained(model, **loading), job, model=model)
    left_out = "".join(f"; left out: {number:,} with {kind}" for kind, number in sorted(counts.skipped.items()))
    typer.echo(f"{counts.embedded:,} of {counts.read:,} {job.what} embedded{left_out}: {output}", err=True)
    for column, number in sorted(counts.missing.items()):
        typer.echo(f"{number:,} of them have no {column}", err=True)

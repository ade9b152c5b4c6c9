"""`babelens index`: builds a search index of image embeddings, for millions of images."""

from pathlib import Path
from typing import Annotated

import typer

from .common import TrustRemoteCode, begin_work, check_folder, check_path


def index(
    output: Annotated[str, typer.Option(help="A new or empty folder for the index, or a LanceDB address.")],
    embeddings: Annotated[
        Path | None,
        typer.Argument(
            metavar="EMBEDDINGS",
            help="Image embeddings that `babelens embed` wrote: a folder of shards, or a .parquet file together with "
            "--model.",
            callback=check_path,
        ),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            help="Instead of EMBEDDINGS, a folder of images and its subfolders, encoded by --model.",
            callback=check_folder,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="The model that encodes the images or computed a .parquet file: a folder, or a name on the Hub."
        ),
    ] = None,
    approximate: Annotated[
        bool,
        typer.Option("--approximate", help="Search the nearest of many cells (IVF-PQ) instead of all vectors."),
    ] = False,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Build a search index of image embeddings, which `babelens search --index` reads.

    `babelens index photos-embedded --output photos.index --approximate`
    """
    if (embeddings is None) == (images is None):
        raise typer.BadParameter("give either EMBEDDINGS or --images", param_hint="EMBEDDINGS")
    if (model is None) != (embeddings is not None and embeddings.is_dir()):
        hint = (
            "a folder of shards states its model" if model else "name the model that encodes, or encoded, the images"
        )
        raise typer.BadParameter(hint, param_hint="--model")
    begin_work()
    from ..inference.embedder import Embedder
    from ..inference.embedding_shards import EmbeddingsInfo
    from ..search import lance
    from ..utils.identity import image_identity

    lance.check_free(output)  # before any image is encoded
    embedder = info = None
    if model:
        embedder = Embedder.from_pretrained(model, draft_jpegs=True, trust_remote_code=trust_remote_code)
        info = EmbeddingsInfo(model, image_identity(embedder.model, embedder.processor), 0)
    if images and embedder:
        source = lance.images_source(embedder, model or "", images)
    else:
        source = lance.embeddings_source(embeddings or Path(), info)
    built = lance.build_index(output, source, approximate=approximate)
    typer.echo(f"{len(built):,} vectors of {built.info.model}: {output}")

"""`babelens embed`: the embeddings of images or texts as a file, for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from .options import BatchSize, Model, SkipBadImages, TextTask, TrustRemoteCode

_FORMATS = (".npy", ".parquet")


def embed(
    model: Model,
    output: Annotated[
        Path,
        typer.Option(
            help="The file to write. `.parquet`: the columns `file`, or `text` and `language`, and `embedding`. "
            "`.npy`: the embeddings alone, one row each; images in the order of their paths, texts in the order of "
            "their lines.",
            dir_okay=False,
        ),
    ],
    images: Annotated[
        Path | None,
        typer.Option(help="A folder of images, searched with its subfolders.", exists=True, file_okay=False),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            help="A text file in UTF-8 with one text per line and no empty line.", exists=True, dir_okay=False
        ),
    ] = None,
    language: Annotated[str | None, typer.Option(help="The language of the texts, as a BCP-47 tag.")] = None,
    task: TextTask = None,
    skip_bad_images: SkipBadImages = False,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Write the embeddings of images or of texts: float32 vectors of length 1, whose dot product is their cosine.

    Embeddings of one model can be compared with each other: a text in any language with an image, or with a text in
    another language. `Dataset.from_parquet(FILE).add_faiss_index("embedding")` makes a search index of millions.
    """
    if (images is None) == (texts is None):
        raise typer.BadParameter("give either --images or --texts")
    if (texts is None) != (language is None):
        raise typer.BadParameter("--texts and --language go together: no language is guessed", param_hint="--language")
    if task and texts is None:
        raise typer.BadParameter("images have no head for each task", param_hint="--task")
    if output.suffix not in _FORMATS:
        raise typer.BadParameter(f"{output.name}: the name must end in {' or '.join(_FORMATS)}", param_hint="--output")
    from .jobs.embed import check_names, embed_images, embed_texts
    from .jobs.models import load_embedder

    if images and output.suffix == ".parquet":
        check_names(images)
    embedder = load_embedder(model, batch_size=batch_size, trust_remote_code=trust_remote_code)
    if images:
        embed_images(embedder, images, output, skip_bad_images=skip_bad_images)
    elif texts and language:
        embed_texts(embedder, texts, language, output, task=task)

"""`babelens index`: builds a search index of image embeddings, for millions of images."""

from pathlib import Path
from typing import Annotated

import typer

from .common import begin_work, check_folder


def index(
    embeddings: Annotated[
        Path,
        typer.Argument(metavar="EMBEDDINGS", help="The folder that `babelens embed` wrote.", callback=check_folder),
    ],
    output: Annotated[str, typer.Option(help="A new or empty folder for the index, or a LanceDB address.")],
    approximate: Annotated[
        bool, typer.Option("--approximate", help="Search the nearest of many cells (IVF-PQ) instead of all vectors.")
    ] = False,
) -> None:
    """Build a search index of image embeddings, which `babelens search --index` reads.

    `babelens index photos-embedded --output photos.index --approximate`
    """
    begin_work()
    from ..search import build_index

    built = build_index(output, embeddings, approximate=approximate)
    typer.echo(f"{len(built):,} vectors of {built.info.model}: {output}")

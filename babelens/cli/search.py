"""`babelens search`: images found by a description, in any language that the model reads."""

from pathlib import Path
from typing import Annotated

import typer

from ..configuration.languages import normalize_language
from .options import (
    AsJson,
    Grid,
    Model,
    Regions,
    Rerank,
    SkipBadImages,
    TopK,
    TrustRemoteCode,
    WholeJpegs,
    check_reranking,
)


def search(
    model: Model,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="A description of the images to find, such as `ein rotes Auto`.")
    ],
    images: Annotated[
        Path,
        typer.Option(help="The folder of images, searched with its subfolders.", exists=True, file_okay=False),
    ],
    language: Annotated[
        str | None,
        typer.Option(
            help="The language of QUERY, as a BCP-47 tag: `de`, `ja`, `zh-Hant`. It may be left out where it does not "
            "matter (MURAL, ETCL, LIWE); otherwise QUERY is in the model's native language, if it has one."
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="Number of images to show.", min=1)] = 10,
    sheet: Annotated[
        Path | None, typer.Option(help="Draw the images that were found into this PNG file.", dir_okay=False)
    ] = None,
    skip_bad_images: SkipBadImages = False,
    whole_jpegs: WholeJpegs = False,
    rerank: Rerank = None,
    top_k: TopK = 50,
    regions: Regions = None,
    grid: Grid = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Find the images of a folder that fit a description best.

    `babelens search runs/mural "ein rotes Auto" --images photos --language de --sheet found.png`

    Each image is shown with its score: the cosine of its embedding and that of the description, at most 1; with
    --rerank, the score of the cross-encoder. Files with the same content are one image, shown with their number. The
    first search of a folder encodes its images; later searches with the same model encode only images that are new
    or have changed.
    """
    if not query.strip():
        raise typer.BadParameter("the description must not be empty", param_hint="QUERY")
    if rerank and top_k < top:
        raise typer.BadParameter(
            f"--top {top} needs at least as many candidates for the cross-encoder", param_hint="--top-k"
        )
    check_reranking(rerank, regions, grid)
    if rerank and language is None:
        raise typer.BadParameter("the cross-encoder reads the language of QUERY", param_hint="--language")
    language = None if language is None else normalize_language(language)
    from .jobs.models import load_cross_encoder, load_embedder
    from .jobs.search import search_images, show_images

    cross_encoder = load_cross_encoder(rerank, regions, grid, trust_remote_code=trust_remote_code)
    embedder = load_embedder(model, draft_jpegs=not whole_jpegs, trust_remote_code=trust_remote_code)
    index, found, language = search_images(
        embedder,
        model,
        images,
        query,
        language,
        top=top,
        cross_encoder=cross_encoder,
        top_k=top_k,
        skip_bad_images=skip_bad_images,
    )
    show_images(index, found, query, language, folder=images, sheet=sheet, as_json=as_json)

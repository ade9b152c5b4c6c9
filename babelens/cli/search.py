"""`babelens search`: images found by a description, in any language that the model reads."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..utils.languages import normalize_language
from .console import plain_console, print_json
from .options import (
    AsJson,
    Grid,
    Model,
    Regions,
    Rerank,
    TopK,
    TrustRemoteCode,
    check_reranking,
)
from .starting import begin_work

if TYPE_CHECKING:
    from ..inference.image_index import FoundImage, ImageIndex


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
    rerank: Rerank = None,
    top_k: TopK = 50,
    regions: Regions = None,
    grid: Grid = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Find the images of a folder that fit a description best.

    `babelens search runs/mural "ein rotes Auto" --images photos --language de`

    Each image is shown with its score: the cosine of its embedding and that of the description, at most 1; with
    --rerank, the score of the cross-encoder. Files with the same content are one image, shown with their number. The
    first search of a folder encodes its images; later searches with the same model encode only images that are new
    or have changed. Hidden folders, thumbnails and trash are passed over; images that cannot be read are skipped, and
    counted and named.
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
    begin_work()
    import numpy as np

    from ..inference.image_index import ImageIndex, image_cache
    from ..inference.texts import languages_of, warn_of_language
    from ..processing.text_inputs import UNDETERMINED, default_language
    from .inputs import load_cross_encoder, load_embedder

    cross_encoder = load_cross_encoder(rerank, regions, grid, trust_remote_code=trust_remote_code)
    embedder = load_embedder(model, draft_jpegs=True, trust_remote_code=trust_remote_code)
    tag = language or default_language(embedder.processor)
    warn_of_language(tag, *languages_of(embedder.processor, model), model)
    index = ImageIndex.of_folder(embedder, images, cache=image_cache())
    found = index.search_distinct(embedder.encode_text(query, language=tag)[0], top_k if cross_encoder else top)
    if cross_encoder:
        scores = cross_encoder.score([query] * len(found), [image.path for image in found], language=tag)
        best = np.argsort(-scores, kind="stable")[:top]
        found = [replace(found[position], score=float(scores[position])) for position in best]
    read_as = None if language is None and tag == UNDETERMINED else tag
    _show(index, found, query, read_as, folder=images, as_json=as_json)


def _show(
    index: "ImageIndex",
    found: "list[FoundImage]",
    query: str,
    language: str | None,
    *,
    folder: Path,
    as_json: bool,
) -> None:
    """Prints what was found as a table or as JSON; `language` is None where it
    does not matter."""
    from rich.table import Table

    if as_json:
        results = [{"file": str(each.path), "score": each.score, "copies": [*map(str, each.copies)]} for each in found]
        left_out = {str(path): reason for path, reason in index.skipped.items()}
        facts = {"query": query, "language": language, "results": results, "skipped": left_out}
        print_json(facts)
        return
    table = Table(title=f"{query} [{language}]" if language else query, caption=f"{len(index.paths)} images searched")
    table.add_column("score", justify="right")
    table.add_column("image", overflow="fold")
    for each in found:
        copies = f" ({len(each.copies) + 1} files)" if each.copies else ""
        table.add_row(f"{each.score:.3f}", f"{each.path.relative_to(folder)}{copies}")
    plain_console().print(table)

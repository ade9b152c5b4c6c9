"""`babelens search`: find images by describing them, in any language the model knows."""

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from ..configuration.files import atomic_file
from ..configuration.languages import normalize_language
from ..data.corpus.images import refuse_mostly_bad
from ..data.emoji.benchmark import DEFAULT_CACHE
from ..inference.gallery import contact_sheet
from ..inference.image_index import ImageIndex
from ..processing.images import open_image
from .console import plain_console
from .embed import GRID_HELP, REGIONS_HELP, SKIP_HELP, load_cross_encoder, load_embedder
from .options import TrustRemoteCode


def search(
    model: Annotated[str, typer.Argument(help="A model's folder, or its name on the Hub.")],
    query: Annotated[str, typer.Argument(help="What the image shows, such as `ein rotes Auto`.")],
    images: Annotated[
        Path, typer.Option(help="The folder to search, with all folders in it.", exists=True, file_okay=False)
    ],
    language: Annotated[str, typer.Option(help="The language of QUERY, as a BCP-47 tag: `de`, `ja`, `zh-Hant`.")],
    top: Annotated[int, typer.Option(help="How many images to show.", min=1)] = 10,
    rerank: Annotated[
        str | None,
        typer.Option(
            help="A cross-encoder, its folder or its name on the Hub, that puts the best images in order. Scores "
            "are then its own."
        ),
    ] = None,
    top_k: Annotated[int, typer.Option(help="How many images it is shown.", min=1)] = 50,
    regions: Annotated[str | None, typer.Option(help=REGIONS_HELP)] = None,
    grid: Annotated[int | None, typer.Option(help=GRID_HELP, min=1)] = None,
    sheet: Annotated[
        Path | None, typer.Option(help="Draw the images found into this file (PNG).", dir_okay=False)
    ] = None,
    skip_bad_images: Annotated[bool, typer.Option("--skip-bad-images", help=SKIP_HELP)] = False,
    trust_remote_code: TrustRemoteCode = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Show the images of a folder that fit a description best, with their scores (without --rerank cosines, at most
    1).

    The first search of a folder encodes its images; later ones, with the same model, encode what is new.

    Example: babelens search runs/mural --images photos "ein rotes Auto" --language de --sheet found.png
    """
    if not query.strip():
        raise typer.BadParameter("the description is empty: every image would fit it as well", param_hint="QUERY")
    if rerank and top_k < top:
        raise typer.BadParameter(f"--top {top} needs as many images to be shown to it", param_hint="--top-k")
    language = normalize_language(language)
    judge = load_cross_encoder(rerank, regions, grid, trust_remote_code=trust_remote_code)
    embedder = load_embedder(model, trust_remote_code=trust_remote_code)
    index = ImageIndex.of_folder(
        embedder, images, skip_bad_images=skip_bad_images, cache=DEFAULT_CACHE / "image_index"
    )
    refuse_mostly_bad([*index.skipped.values()], len(index.skipped) + len(index.paths))
    found = index.search(embedder.encode_text(query, language=language)[0], top_k if judge else top)
    if judge:
        paths = [path for path, _ in found]
        scores = judge.score([query] * len(paths), paths, language=language)
        found = [(paths[best], float(scores[best])) for best in np.argsort(-scores, kind="stable")[:top]]
    if sheet:
        drawn = contact_sheet(
            [open_image(path) for path, _ in found], [f"{score:.3f}" for _, score in found], cell=192
        )
        with atomic_file(sheet) as path:
            drawn.save(path, "PNG")
    if as_json:
        results = [{"file": str(path), "score": score} for path, score in found]
        skipped = {str(path): reason for path, reason in index.skipped.items()}
        facts = {"query": query, "language": language, "results": results, "skipped": skipped}
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    table = Table(title=f"{query} [{language}]", caption=f"{len(index.paths)} images searched")
    table.add_column("score", justify="right")
    table.add_column("image", overflow="fold")
    for path, score in found:
        table.add_row(f"{score:.3f}", str(path.relative_to(images)))
    plain_console().print(table)
    for reason in index.skipped.values():
        typer.echo(f"left out: {reason}", err=True)

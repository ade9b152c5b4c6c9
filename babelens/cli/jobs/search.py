"""Searching a folder of images, for `babelens search`."""

import json
from pathlib import Path

import numpy as np
import typer
from rich.table import Table

from ...configuration.files import atomic_file
from ...data.corpus.images import refuse_mostly_bad
from ...data.emoji.benchmark import DEFAULT_CACHE
from ...inference.cross_encoder import CrossEncoder
from ...inference.embedder import Embedder
from ...inference.gallery import contact_sheet
from ...inference.image_index import ImageIndex
from ...processing.images import open_image
from ..console import plain_console

Found = list[tuple[Path, float]]


def search_images(
    embedder: Embedder,
    folder: Path,
    query: str,
    language: str,
    *,
    top: int,
    cross_encoder: CrossEncoder | None,
    top_k: int,
    skip_bad_images: bool,
) -> tuple[ImageIndex, Found]:
    """The index of a folder, and the best `top` images for a query with their scores, best first.

    With a cross-encoder, they are the best by its scores among the embedder's best `top_k`.
    """
    cache = DEFAULT_CACHE / "image_index"
    index = ImageIndex.of_folder(embedder, folder, skip_bad_images=skip_bad_images, cache=cache)
    refuse_mostly_bad([*index.skipped.values()], len(index.skipped) + len(index.paths))
    embedding = embedder.encode_text(query, language=language)[0]
    if cross_encoder is None:
        return index, index.search(embedding, top)
    paths = [path for path, _ in index.search(embedding, top_k)]
    scores = cross_encoder.score([query] * len(paths), paths, language=language)
    return index, [(paths[best], float(scores[best])) for best in np.argsort(-scores, kind="stable")[:top]]


def show_images(
    index: ImageIndex, found: Found, query: str, language: str, *, folder: Path, sheet: Path | None, as_json: bool
) -> None:
    """Prints what was found as a table or as JSON, and draws it into the file `sheet`."""
    if sheet:
        images, labels = [open_image(path) for path, _ in found], [f"{score:.3f}" for _, score in found]
        with atomic_file(sheet) as path:
            contact_sheet(images, labels, cell=192).save(path, "PNG")
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
        table.add_row(f"{score:.3f}", str(path.relative_to(folder)))
    plain_console().print(table)
    for reason in index.skipped.values():
        typer.echo(f"left out: {reason}", err=True)

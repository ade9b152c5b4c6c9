"""Searching a folder of images, for `babelens search`."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import typer
from rich.table import Table

from ...configuration.files import atomic_file
from ...data.corpus.images import refuse_mostly_bad
from ...inference.cross_encoder import CrossEncoder
from ...inference.embedder import Embedder
from ...inference.gallery import contact_sheet
from ...inference.image_index import FoundImage, ImageIndex
from ...inference.image_store import image_cache
from ...inference.stated_languages import languages_of, warn_of_language
from ...processing.images import open_image
from ...processing.text_inputs import UNDETERMINED, default_language
from ..console import plain_console


def search_images(
    embedder: Embedder,
    model: str,
    folder: Path,
    query: str,
    language: str | None,
    *,
    top: int,
    cross_encoder: CrossEncoder | None,
    top_k: int,
    skip_bad_images: bool,
) -> tuple[ImageIndex, list[FoundImage], str | None]:
    """The index of a folder, the best `top` images for a query, best first, and the language in which it was read, if
    it matters.

    With a cross-encoder, they are the best by its scores among the embedder's best `top_k`.
    """
    tag = language or default_language(embedder.processor)
    warn_of_language(tag, *languages_of(embedder.processor, model), model)
    index = ImageIndex.of_folder(embedder, folder, skip_bad_images=skip_bad_images, cache=image_cache())
    refuse_mostly_bad([*index.skipped.values()], len(index.skipped) + len(index.paths))
    embedding = embedder.encode_text(query, language=tag)[0]
    read_as = None if language is None and tag == UNDETERMINED else tag
    if cross_encoder is None:
        return index, index.search_distinct(embedding, top), read_as
    found = index.search_distinct(embedding, top_k)
    scores = cross_encoder.score([query] * len(found), [image.path for image in found], language=tag)
    best = np.argsort(-scores, kind="stable")[:top]
    return index, [replace(found[position], score=float(scores[position])) for position in best], read_as


def show_images(
    index: ImageIndex,
    found: list[FoundImage],
    query: str,
    language: str | None,
    *,
    folder: Path,
    sheet: Path | None,
    as_json: bool,
) -> None:
    """Prints what was found as a table or as JSON, and draws it into the file `sheet`.

    Args:
        index: what was searched.
        found: the images, best first.
        query, language: what was searched for; None where the language does not matter.
        folder: the folder of images.
        sheet: a PNG file, or None.
        as_json: whether to print JSON.
    """
    if sheet:
        images, labels = [open_image(each.path) for each in found], [f"{each.score:.3f}" for each in found]
        with atomic_file(sheet) as path:
            contact_sheet(images, labels, cell=192).save(path, "PNG")
    if as_json:
        results = [{"file": str(each.path), "score": each.score, "copies": [*map(str, each.copies)]} for each in found]
        left_out = {str(path): reason for path, reason in index.skipped.items()}
        facts = {"query": query, "language": language, "results": results, "skipped": left_out}
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    table = Table(title=f"{query} [{language}]" if language else query, caption=f"{len(index.paths)} images searched")
    table.add_column("score", justify="right")
    table.add_column("image", overflow="fold")
    for each in found:
        copies = f" ({len(each.copies) + 1} files)" if each.copies else ""
        table.add_row(f"{each.score:.3f}", f"{each.path.relative_to(folder)}{copies}")
    plain_console().print(table)
    for reason in index.skipped.values():
        typer.echo(f"left out: {reason}", err=True)

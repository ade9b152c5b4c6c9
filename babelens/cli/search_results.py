"""What `babelens search` found, as a table, as JSON and as a contact sheet; without torch, which takes a second."""

import json
from collections.abc import Mapping
from pathlib import Path

import typer
from rich.table import Table

from ..configuration.files import atomic_file
from .console import plain_console

Found = list[tuple[Path, float]]


def show_images(
    found: Found,
    query: str,
    language: str | None,
    *,
    folder: Path,
    n_images: int,
    skipped: Mapping[Path, str],
    sheet: Path | None,
    as_json: bool,
) -> None:
    """Prints what was found as a table or as JSON, and draws it into the file `sheet`.

    Args:
        found: the images with their scores, best first.
        query, language: what was searched for; None where the language did not matter.
        folder: the folder of images.
        n_images: the number of images that were searched.
        skipped: the images that could not be read, each with the reason.
        sheet: a PNG file, or None.
        as_json: whether to print JSON.
    """
    if sheet:
        _draw(found, sheet)
    if as_json:
        results = [{"file": str(path), "score": score} for path, score in found]
        left_out = {str(path): reason for path, reason in skipped.items()}
        facts = {"query": query, "language": language, "results": results, "skipped": left_out}
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    table = Table(title=f"{query} [{language}]" if language else query, caption=f"{n_images} images searched")
    table.add_column("score", justify="right")
    table.add_column("image", overflow="fold")
    for path, score in found:
        table.add_row(f"{score:.3f}", str(path.relative_to(folder)))
    plain_console().print(table)
    for reason in skipped.values():
        typer.echo(f"left out: {reason}", err=True)


def _draw(found: Found, sheet: Path) -> None:
    from ..inference.gallery import contact_sheet
    from ..processing.images import open_image

    images, labels = [open_image(path) for path, _ in found], [f"{score:.3f}" for _, score in found]
    with atomic_file(sheet) as path:
        contact_sheet(images, labels, cell=192).save(path, "PNG")

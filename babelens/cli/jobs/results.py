"""Showing results: as JSON in a file or on the terminal, or as a table."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from ...configuration.files import atomic_file
from ...evaluation.found_images import gallery_file, write_gallery
from ...evaluation.query_ranks import QueryRanks, ranks_file, write_ranks
from ...inference.gallery import GalleryRow
from ...reports.page import write_report
from ...workflows.reporting import forget_model


def show_results(
    results: Mapping[str, Any],
    output: Path | None,
    as_json: bool,
    print_table: Callable[[], None],
    *,
    ranks: Mapping[str, QueryRanks] | None = None,
    gallery: Sequence[GalleryRow] = (),
    credits: Sequence[str] = (),
    report: bool = False,
) -> None:
    """Writes results into `output` where it is given, and prints them as JSON or by `print_table`.

    Args:
        results: the results.
        output: the file.
        as_json: whether to print JSON.
        print_table: prints a table.
        ranks: the ranks of the queries, which are kept beside the file.
        gallery, credits: some queries with their images, and the owners of these, which are kept there, too.
        report: whether to write the page about the results beside the file.
    """
    text = json.dumps(results, ensure_ascii=False, indent=2)
    if output:
        with atomic_file(output) as path:
            path.write_text(text, "utf-8")
        forget_model(output)
        if ranks:
            with atomic_file(ranks_file(output)) as path:
                write_ranks(path, ranks)
        if gallery:
            with atomic_file(gallery_file(output)) as path:
                write_gallery(path, gallery, credits)
        if report:
            write_report(output)
    if as_json:
        typer.echo(text)
    else:
        print_table()

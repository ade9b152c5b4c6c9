"""Asking a running server, for `babelens search`; without torch."""

from pathlib import Path

import typer

from ..serving.running import find_server
from .search_results import show_images


def asked_server(
    model: str,
    folder: Path,
    query: str,
    language: str,
    *,
    top: int,
    skip_bad_images: bool,
    sheet: Path | None,
    as_json: bool,
) -> bool:
    """Prints the answer of a server that runs with this model on this folder; False when there is none.

    A server that left out bad images is asked only when they are to be left out. What a server refuses, such as a
    language that its model has not learned, is left to the search without a server, which tells the reason.
    """
    server = find_server(model, folder)
    if server is None or (server.skipped and not skip_bad_images):
        return False
    results = server.search(query, language, top)
    if results is None or any("\ufffd" in result["file"] for result in results):  # a name that is no Unicode
        return False
    typer.echo(f"asked the server at {server.address}", err=True)
    show_images(
        [(folder / result["file"], result["score"]) for result in results],
        query,
        language,
        folder=folder,
        n_images=server.images,
        skipped={folder / file: reason for file, reason in server.skipped.items()},
        sheet=sheet,
        as_json=as_json,
    )
    return True

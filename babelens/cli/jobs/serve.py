"""Serving a folder of images, for `babelens serve`."""

from pathlib import Path
from socket import socket

import typer

from ...inference.image_store import image_cache
from ...serving.server import serve
from ...serving.service import ImageService
from ..console import plain_console
from .models import load_embedder


def serve_images(
    model: str,
    folder: Path,
    host: str,
    bound: socket,
    *,
    token: str | None,
    skip_bad_images: bool,
    whole_jpegs: bool,
    trust_remote_code: bool,
) -> None:
    """Encodes the images of a folder, and serves them at a socket until the process is told to stop."""
    console = plain_console(stderr=True)
    console.print(f"Loading {model} …", highlight=False)
    embedder = load_embedder(model, draft_jpegs=not whole_jpegs, trust_remote_code=trust_remote_code)
    console.print(f"Reading the images of {folder} …", highlight=False)
    service = ImageService.of_folder(
        embedder, folder, model=model, cache=image_cache(), skip_bad_images=skip_bad_images
    )
    for reason in service.index.skipped.values():
        typer.echo(f"left out: {reason}", err=True)

    def announce(address: str) -> None:
        typer.echo(f"{len(service)} images are searched at {address} (Ctrl-C stops the server)")

    serve(service, bound, host=host, token=token, on_start=announce)
    console.print("The server has stopped.")

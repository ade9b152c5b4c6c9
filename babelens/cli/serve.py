"""`babelens serve`: a page in the browser, and a JSON API, to search the images of a folder."""

from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated

import typer

from .console import plain_console
from .options import Model, TrustRemoteCode
from .starting import begin_work


def serve(
    model: Model,
    images: Annotated[
        Path,
        typer.Option(help="The folder of images, searched with its subfolders.", exists=True, file_okay=False),
    ],
    host: Annotated[
        str, typer.Option(help="The address to serve at. `0.0.0.0` lets others reach the server: give a --token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)] = 7860,
    token: Annotated[
        str | None,
        typer.Option(
            help="What the page asks for as a password, and the API as a bearer token; at least 16 characters. Others "
            "on this machine can read the options of a program, and no environment variable.",
            envvar="BABELENS_TOKEN",
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(help="The language of queries that state none, and with which the page begins, such as `uk`."),
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Serve a page to search the images of a folder: by text in any language of the model, and by image.

    `babelens serve runs/mural --images photos`

    The page is at http://127.0.0.1:7860. Images are read and never changed; no other file is served, and no request
    leaves the machine. By default, the server can be reached from this machine alone.

    The first start encodes the images of the folder. Later starts with the same model encode only images that are new
    or have changed; what changes while the server runs is searched after the next start. Ctrl-C stops the server.
    """
    from ..serving.binding import bound_socket, check_token

    token = token or None
    check_token(host, token)
    with closing(bound_socket(host, port)) as bound:
        begin_work()
        from ..inference.image_index import image_cache
        from ..serving.app import create_app, make_server
        from ..serving.service import ImageService
        from .inputs import load_embedder

        console = plain_console(stderr=True)
        console.print(f"Loading {model} …", highlight=False)
        embedder = load_embedder(model, draft_jpegs=True, trust_remote_code=trust_remote_code)
        console.print(f"Reading the images of {images} …", highlight=False)
        service = ImageService.of_folder(embedder, images, model=model, cache=image_cache(), language=language)
        address = f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}/"
        typer.echo(f"{len(service)} images are searched at {address} (Ctrl-C stops the server)")
        with suppress(KeyboardInterrupt):
            make_server(create_app(service, host=host, token=token)).run(sockets=[bound])
        console.print("The server has stopped.")

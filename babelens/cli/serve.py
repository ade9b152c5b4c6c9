"""`babelens serve`: serves a web page and a JSON API to search the images of a folder."""

from contextlib import closing, suppress
from typing import Annotated

import typer

from ..utils.errors import requires
from .common import Images, Model, TrustRemoteCode, begin_work, check_tags, plain_console


def serve(
    model: Model,
    images: Images,
    host: Annotated[
        str, typer.Option(help="The address to serve at. With `0.0.0.0`, other machines can connect: give a --token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 chooses a free one.", min=0, max=65535)] = 7860,
    token: Annotated[
        str | None,
        typer.Option(
            help="The password and bearer token, at least 16 characters. Other users of this machine can see "
            "command-line options: prefer the variable.",
            envvar="BABELENS_TOKEN",
        ),
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="The language of queries that state none, such as `uk`.", callback=check_tags)
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Serve a page to search a folder of images, by text and by image.

    `babelens serve runs/mural --images photos`

    Images are never changed, no other file is served, and no request leaves the machine. The first start encodes all
    images; later starts encode only new or changed ones. Ctrl-C stops the server.
    """
    from ..serving.binding import bound_socket, check_token

    token = token or None
    check_token(host, token)
    with closing(bound_socket(host, port)) as bound:
        begin_work()
        from ..inference.embedder import Embedder
        from ..inference.image_index import IMAGE_CACHE
        from ..serving.service import ImageService

        with requires("fastapi", "python-multipart", "uvicorn"):
            from ..serving.app import create_app, make_server
        console = plain_console(stderr=True)
        console.print(f"Loading {model} …", highlight=False)
        embedder = Embedder.from_pretrained(model, draft_jpegs=True, trust_remote_code=trust_remote_code)
        console.print(f"Reading the images of {images} …", highlight=False)
        service = ImageService(embedder, images, model=model, cache=IMAGE_CACHE, language=language)
        address = f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}/"
        server = make_server(create_app(service, host=host, token=token))
        with suppress(KeyboardInterrupt):
            # The socket listens already: a request that comes before the server runs waits for it.
            typer.echo(f"{len(service)} images can be searched at {address} (Ctrl-C stops the server)")
            server.run(sockets=[bound])
        console.print("The server has stopped.")

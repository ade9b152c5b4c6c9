"""`babelens info`: what a model consists of, and the environment that babelens runs in."""

from typing import Annotated

import typer

from .options import AsJson, TrustRemoteCode


def info(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A preset such as `mural-base`, or a model: a folder, or a name on the Hugging Face Hub.",
        ),
    ] = None,
    environment: Annotated[
        bool,
        typer.Option(
            "--environment", help="Show the versions, the hardware and the settings that a bug report needs."
        ),
    ] = False,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Show the number of parameters of a model and of its parts; for presets, beside the numbers of the paper.

    Only the configuration is read. No weights are downloaded, and no memory is taken for them, however large the
    model.

    `babelens info --environment` takes no model. Paste what it prints into a bug report: it names no user, and no
    folder outside of the home folder but those that were set for the Hugging Face cache.
    """
    if environment == (model is not None):
        raise typer.BadParameter("give either a model or --environment", param_hint="MODEL")
    if environment:
        from .environment import show_environment

        show_environment(as_json=as_json)
    elif model:
        from .jobs.info import show_parameters

        show_parameters(model, trust_remote_code=trust_remote_code, as_json=as_json)

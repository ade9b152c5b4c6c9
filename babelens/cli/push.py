"""`babelens push`: the folder of a trained model becomes a repository on the Hugging Face Hub."""

from pathlib import Path
from typing import Annotated

import typer


def push(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder of a trained model.", exists=True, file_okay=False)
    ],
    repository: Annotated[
        str, typer.Argument(metavar="REPOSITORY", help="The repository to publish to: `owner/name`.")
    ],
    private: Annotated[bool, typer.Option("--private", help="Create the repository as a private one.")] = False,
    revision: Annotated[
        str | None,
        typer.Option(metavar="BRANCH", help="The branch to publish to, made if it is missing.", show_default="main"),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(
            metavar="OWNER/NAME",
            help="Publish a Space as well: a page, made with Gradio, to try the model in a browser.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the folder and list the files to upload, without any network access."),
    ] = False,
) -> None:
    """Publish a model on the Hugging Face Hub: weights, processor, code and card, as one commit.

    The folder is checked first: the configuration, the weights, the processor, the code that lets others load the
    model without babelens, and the card with its metadata. Nothing is uploaded when a file is missing or damaged,
    when weights are not finite, or when a link leads out of the folder. Checkpoints, logs and pickles are never
    uploaded.

    Log in once with `hf auth login`, or set HF_TOKEN.
    """
    from .jobs.push import publish

    publish(folder, repository, private=private, revision=revision, space=space, dry_run=dry_run)

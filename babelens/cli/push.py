"""`babelens push`: a trained model's folder becomes a repository on the Hugging Face Hub."""

from pathlib import Path
from typing import Annotated

import typer
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from rich.filesize import decimal
from rich.table import Table

from ..publishing import files_to_publish, folder_problems, push as push_folder
from .console import plain_console


def push(
    folder: Annotated[Path, typer.Argument(help="The folder of a trained model.", exists=True, file_okay=False)],
    repository: Annotated[str, typer.Argument(help="Where to publish it: `owner/name`.")],
    private: Annotated[bool, typer.Option("--private", help="Create the repository as a private one.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the folder and show what would be uploaded. Needs no network.")
    ] = False,
) -> None:
    """Publish a model on the Hugging Face Hub: weights, processor, code and card, as one commit.

    The folder is checked first: configuration, weights, processor, the code that lets others load the model without
    babelens, and the card with its metadata. Nothing is uploaded when something is missing, damaged, not finite, or a
    link out of the folder. Checkpoints, logs and pickles stay at home.

    Log in once with `hf auth login`, or set HF_TOKEN.
    """
    console = plain_console()
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise typer.BadParameter(str(error), param_hint="REPOSITORY") from error
    files = files_to_publish(folder)
    table = Table("file", "size", title=f"{folder} → {repository}")
    table.columns[1].justify = "right"
    for path, size in files.items():
        table.add_row(path, decimal(size))
    table.add_section()
    table.add_row(f"{len(files)} files", decimal(sum(files.values())))
    console.print(table)
    if problems := folder_problems(folder):
        console.print(f"{folder} cannot be published:", style="bold red")
        for problem in problems:
            console.print(f"- {problem}")
        raise typer.Exit(1)
    if dry_run:
        console.print("The folder is fit to be published. Nothing was uploaded.")
        return
    with console.status("Uploading …"):
        address = push_folder(folder, repository, private=private)
    console.print(f"Published: {address}")

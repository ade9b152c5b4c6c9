"""Publishing a folder on the Hub, for `babelens push`."""

from pathlib import Path

import typer
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from rich.filesize import decimal
from rich.table import Table

from ...publishing import files_to_publish, folder_problems, push as push_folder
from ..console import plain_console


def publish(folder: Path, repository: str, *, private: bool, dry_run: bool) -> None:
    """Checks a folder, lists its files, and uploads them unless `dry_run`.

    Raises:
        typer.BadParameter: for what is no name of a repository.
        typer.Exit: when the folder cannot be published; the problems are printed.
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

"""Publishing a folder on the Hub, for `babelens push`."""

from pathlib import Path

import typer
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from ...publishing import Published, files_to_publish, folder_problems, machine_paths, push as push_folder
from ...spaces import push_space, space_files
from ..console import plain_console


def publish(
    folder: Path, repository: str, *, private: bool, revision: str | None, space: str | None, dry_run: bool
) -> None:
    """Checks a folder, lists its files, and uploads them unless `dry_run`.

    Raises:
        typer.BadParameter: for what is no name of a repository.
        typer.Exit: when the folder cannot be published; the problems are printed.
    """
    console = plain_console()
    _check_name(repository, "REPOSITORY")
    files = files_to_publish(folder)
    _show(console, f"{folder} → {repository}", files)
    if problems := folder_problems(folder):
        console.print(f"{folder} cannot be published:", style="bold red")
        for problem in problems:
            console.print(f"- {problem}")
        raise typer.Exit(1)
    if space is not None:
        _check_name(space, "--space")
        page = {path: len(content) for path, content in space_files(folder, repository).items()}
        _show(console, f"A page to try it → {space}", page)
    if dry_run:
        for sentence in machine_paths(folder):
            console.print(f"Warning: {sentence}", style="yellow")
        console.print("The folder is fit to be published. Nothing was uploaded.")
        return
    with console.status("Uploading …"):
        published = push_folder(folder, repository, private=private, revision=revision)
    _tell(console, published)
    if space is not None:
        with console.status("Uploading the Space …"):
            _tell(console, push_space(folder, repository, space, private=private))


def _check_name(repository: str, where: str) -> None:
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise typer.BadParameter(str(error), param_hint=where) from error


def _show(console: Console, title: str, files: dict[str, int]) -> None:
    table = Table("file", "size", title=title)
    table.columns[1].justify = "right"
    for path, size in files.items():
        table.add_row(path, decimal(size))
    table.add_section()
    table.add_row(f"{len(files)} files", decimal(sum(files.values())))
    console.print(table)


def _tell(console: Console, published: Published) -> None:
    console.print(f"{'Published' if published.changed else 'Nothing has changed since'}: {published.address}")

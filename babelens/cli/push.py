"""`babelens push`: publishes the folder of a trained model on the Hugging Face Hub."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..utils.errors import PublishError
from .common import begin_work, check_folder, plain_console

if TYPE_CHECKING:
    from rich.console import Console


def push(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder of a trained model.", callback=check_folder)
    ],
    repository: Annotated[
        str, typer.Argument(metavar="REPOSITORY", help="The repository to publish to: `owner/name`.")
    ],
    private: Annotated[bool, typer.Option("--private", help="Create a private repository.")] = False,
    space: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="Also publish a Space: a page to try the model in a browser."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the folder and list the files to upload, offline.")
    ] = False,
) -> None:
    """Publish a model on the Hugging Face Hub, with its code and card.

    The folder is checked first: configuration, weights, processor, code, and the card. Nothing is uploaded if a file
    is missing or damaged, weights are not finite, a file holds a token, or a link leads out of the folder.
    Checkpoints, logs and pickles are never uploaded.

    Log in once with `hf auth login`, or set HF_TOKEN.
    """
    from huggingface_hub.utils import validate_repo_id

    for name in (repository, *([space] if space else [])):
        try:
            validate_repo_id(name)
        except ValueError as error:
            raise PublishError(str(error)) from error
    begin_work()
    from ..publishing import doubts, files_to_publish, folder_problems, push as push_folder, push_space, space_files

    console = plain_console()
    _show(console, f"{folder} → {repository}", files_to_publish(folder))
    # Without a page, `push_folder` checks the folder, which loads the model.
    if (dry_run or space) and (problems := folder_problems(folder)):
        raise PublishError(f"{folder} cannot be published:\n" + "\n".join(f"- {problem}" for problem in problems))
    if space:
        page = {path: len(content) for path, content in space_files(folder, repository).items()}
        _show(console, f"A page to try it → {space}", page)
    if dry_run:
        found = doubts(folder)
        for sentence in found:
            console.print(f"Warning: {sentence}", style="yellow")
        fit = "can be published; check the warnings first" if found else "can be published"
        console.print(f"The folder {fit}. Nothing was uploaded.")
        return
    with console.status("Uploading …"):
        published = [push_folder(folder, repository, private=private)]
        if space:
            published.append(push_space(folder, repository, space, private=private))
    for each in published:
        console.print(f"{'Published' if each.changed else 'Nothing has changed since'}: {each.address}")


def _show(console: "Console", title: str, files: dict[str, int]) -> None:
    from rich.filesize import decimal
    from rich.table import Table

    table = Table("file", "size", title=title)
    table.columns[1].justify = "right"
    for path, size in files.items():
        table.add_row(path, decimal(size))
    table.add_section()
    table.add_row(f"{len(files)} files", decimal(sum(files.values())))
    console.print(table)

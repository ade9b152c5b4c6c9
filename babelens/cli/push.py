"""`babelens push`: the folder of a trained model becomes a repository on the Hugging Face Hub."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .common import begin_work, check_folder, plain_console

if TYPE_CHECKING:
    from rich.console import Console

    from ..publishing import Published


def push(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder of a trained model.", callback=check_folder)
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
    format_: Annotated[
        Literal["transformers"] | None,
        typer.Option(
            "--format",
            help="Publish the model as a class that comes with transformers, which loads without code, as "
            "`babelens export --format transformers` writes it.",
            show_default="with its code",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the folder and list the files to upload, without any network access."),
    ] = False,
) -> None:
    """Publish a model on the Hugging Face Hub, with its code and card.

    The folder is checked first: the configuration, the weights, the processor, the code that lets others load the
    model without babelens, and the card with its metadata. Nothing is uploaded when a file is missing or damaged,
    when weights are not finite, or when a link leads out of the folder. Checkpoints, logs and pickles are never
    uploaded. With `--format transformers`, the model is written as a stock model first, which needs no code.

    Log in once with `hf auth login`, or set HF_TOKEN.
    """
    begin_work()

    chosen: dict[str, Any] = {"private": private, "revision": revision, "space": space, "dry_run": dry_run}
    if format_ is None:
        _publish(folder, repository, **chosen)
        return
    if space is not None:
        raise typer.BadParameter("a Space installs babelens; leave out --format", param_hint="--space")
    from tempfile import TemporaryDirectory

    from ..stock_folders import export_stock
    from .export import show_stock

    with TemporaryDirectory() as scratch:
        made = export_stock(folder, Path(scratch, folder.resolve().name))
        show_stock(made)
        _publish(made.folder, repository, **chosen)


def _publish(
    folder: Path, repository: str, *, private: bool, revision: str | None, space: str | None, dry_run: bool
) -> None:
    from ..publishing import doubts, files_to_publish, folder_problems, push as push_folder
    from ..spaces import push_space, space_files

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
        found = doubts(folder)
        for sentence in found:
            console.print(f"Warning: {sentence}", style="yellow")
        fit = "can be published; look at the warnings first" if found else "is fit to be published"
        console.print(f"The folder {fit}. Nothing was uploaded.")
        return
    with console.status("Uploading …"):
        published = push_folder(folder, repository, private=private, revision=revision)
    _tell(console, published)
    if space is not None:
        with console.status("Uploading the Space …"):
            _tell(console, push_space(folder, repository, space, private=private))


def _check_name(repository: str, where: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise typer.BadParameter(str(error), param_hint=where) from error


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


def _tell(console: "Console", published: "Published") -> None:
    console.print(f"{'Published' if published.changed else 'Nothing has changed since'}: {published.address}")

"""Shared parts of the commands: options, argument checks, printing, and the start of the work.

Importing this module loads neither torch nor transformers, so `--help` and argument errors take less than a second.
"""

import gc
import inspect
import json
import shlex
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..utils.errors import CorpusError, InputError, ModelFolderError, did_you_mean
from ..utils.files import no_folder
from ..utils.languages import normalize_languages

if TYPE_CHECKING:
    from datasets import Dataset
    from rich.console import Console
    from rich.table import Table

# ---- Argument checks, as option callbacks: typos are reported at once ----

_FILES = (".tsv", ".csv", ".txt", ".json", ".jsonl", ".parquet", ".gz", ".zip")
_PATTERN = ("://", "*", "?", "{", "[")


def check_model(source: str | None) -> str | None:
    """Refuses a file, and a name that is neither a folder nor OWNER/NAME; a table of vectors may be a model."""
    if source is None or (source and Path(source).is_dir()):
        return source
    if Path(source).is_file():
        if Path(source).suffix != ".parquet":
            raise ModelFolderError(f"{source} is a file: name the folder that holds the model")
    elif source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise ModelFolderError(no_folder(source))
    return source


def check_source(source: str | None) -> str | None:
    """Refuses the name of a data file that does not exist."""
    path = Path(source or ".")
    if source is None or path.exists() or any(part in source for part in _PATTERN):
        return source
    if path.suffix in _FILES or (path.suffix and path.parent.is_dir()) or source.startswith((".", "/", "~")):
        raise CorpusError(_missing("file", path))
    return source


def check_path(value: Any) -> Any:
    """Refuses a file or folder that does not exist, or one of several."""
    for path in value if isinstance(value, list | tuple) else [value]:
        if path is not None and not path.exists():
            raise InputError(_missing("file or folder", path))
    return value


def check_folder(path: Path | None) -> Path | None:
    """Refuses a folder that does not exist."""
    if path is not None and not path.is_dir():
        raise InputError(_missing("folder", path))
    return path


def check_tags(languages: str | None) -> str | None:
    """Refuses a tag that is not a language."""
    if languages and languages != "all":
        normalize_languages(split_tags(languages))
    return languages


def _missing(kind: str, path: Path) -> str:
    if path.exists():
        return f"{path} is a file, not a folder"
    here = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    return f"No {kind} {str(path)!r} here{did_you_mean(path.name, here)}"


def check_recipe(recipe: str) -> str:
    """Refuses a recipe that is neither a file nor part of babelens, and a variant that it does not have."""
    from ..training.recipe_file import find_recipe

    find_recipe(recipe)
    return recipe


# ---- Arguments and options ----

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A model: a folder, or a name on the Hub.", callback=check_model)
]
PUBLISHED_TOO = (
    "a folder with a `metadata.jsonl`, parquet files, a CSV file, or a data set on the Hub; or the original files of "
    "a published data set, with --option: `multi30k`, `flickr30k`, `coco`, `wit`, `cc3m`, `cc12m`, `cc300k`"
)
SourceOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="An option of the data, as under `options` in a recipe: `folder=data/multi30k`, `caption_column=title`. "
        "Repeatable.",
    ),
]
Images = Annotated[Path, typer.Option(help="The folder of images, with its subfolders.", callback=check_folder)]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with a model you trust.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
BatchSize = Annotated[int, typer.Option(help="Number of images or texts to encode at a time.", min=1, metavar="N")]
Languages = Annotated[
    str | None,
    typer.Option(
        help="The languages, such as `en,de,zh-Hant`.", show_default="all languages of the data", callback=check_tags
    ),
]
Split = Annotated[str | None, typer.Option(help="The split to read, if the data set has several.")]
ResultsFile = Annotated[
    Path | None, typer.Option("--output", help="Also write the results into this file, as JSON.", dir_okay=False)
]


# ---- Values of options ----


def split_tags(languages: str) -> list[str]:
    """The parts of an option such as `en,de,zh-Hant`."""
    return [tag.strip() for tag in languages.split(",") if tag.strip()]


def tags_of(languages: str | None) -> list[str] | None:
    """The languages of --languages; None if it is left out."""
    if languages is None:
        return None
    if not (tags := split_tags(languages)):
        raise typer.BadParameter(f"{languages!r} names no language", param_hint="--languages")
    return tags


# ---- The work ----


def begin_work() -> None:
    """Registers the models of babelens with transformers. Commands call it before they import torch.

    `main` has stopped the garbage collector, because these imports create a million objects and no garbage.
    """
    from ..registry import register

    register()
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # commands clean up on Ctrl-C
    from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
    from transformers.utils.logging import disable_progress_bar

    downloads_have_bars = not are_progress_bars_disabled()
    disable_progress_bar()  # shown for the weights of every model
    if downloads_have_bars:
        enable_progress_bars()


def read_source(
    source: str, options: Sequence[str] | None = None, *, translations: bool = False, **given: Any
) -> "Dataset":
    """Reads the captions, or the translations, of a source of recipes, and skips images that cannot be read.
    `options` are the reader's, as `NAME=VALUE` in YAML; `given` are other arguments, unless they are None."""
    from datasets import Dataset

    from ..training.recipe_file import parse
    from ..training.schema import DataSource, validate

    pairs = [option.partition("=") for option in options or ()]
    if wrong := ["".join(pair) for pair in pairs if not all(pair[:2])]:
        raise typer.BadParameter(
            f"{wrong[0]!r} is not NAME=VALUE, such as folder=data/multi30k", param_hint="--option"
        )
    named = {name: parse(value) for name, _, value in pairs}
    data: DataSource = validate(DataSource, {"source": source, "options": named})
    data.loader_options("--option", translations=translations)
    arguments = {name: value for name, value in given.items() if value is not None}
    parameters = inspect.signature(data.loader(translations=translations)).parameters
    if "on_bad_image" in parameters and not {"on_bad_image", "check_images"} & {*data.options}:
        arguments = {"on_bad_image": "skip"} | arguments
    if "skipped" not in parameters:
        arguments.pop("skipped", None)
    if unread := [name for name in arguments if name not in parameters]:
        raise InputError(f"{source} is read without --{unread[0].replace('_', '-')}")
    if "streaming" in parameters and "streaming" not in data.options:
        arguments["streaming"] = False
    corpus = data.load(translations=translations, **arguments)
    if not isinstance(corpus, Dataset):
        raise InputError(f"{source} is a stream without an end: use it for training")
    return corpus


# ---- Printing ----


def plain_console(*, stderr: bool = False) -> "Console":
    """A console that prints user text verbatim: `[b]` is not markup, and `:cat:` is not an emoji."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False)


def print_json(facts: Any) -> None:
    """Prints facts as JSON, with paths and dates as strings."""
    typer.echo(json.dumps(facts, ensure_ascii=False, indent=2, default=str))


def results_table(*headings: str, title: str | None = None, names: int = 1) -> "Table":
    """A table whose first `names` columns are texts and the others numbers; ten columns fit 80 characters."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", collapse_padding=True)
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="left" if index < names else "right")
    return table


def cells(values: Iterable[float | None]) -> list[str]:
    """Counts with commas, other numbers with one decimal, and nothing for a number that is missing."""
    return ["" if each is None else f"{each:,}" if isinstance(each, int) else f"{each:.1f}" for each in values]


def show_next(console: "Console", model: Path, language: str | None, *, searches: bool = True) -> None:
    """Prints next steps for a new model: commands to copy, each below its purpose."""
    folder = shlex.quote(str(model))
    stated = f" --language {language}" if language else ""
    commands = {"its size, compared with the paper's": f"babelens info {folder}"}
    if searches:
        commands = {
            "finds images of a folder": f'babelens search {folder} "…"{stated} --images photos',
            "a page to search them": f"babelens serve {folder} --images photos",
        }
    commands["checks what would be published"] = f"babelens push {folder} NAME/{shlex.quote(model.name)} --dry-run"
    console.print("Next:")
    for purpose, command in commands.items():
        console.print(f"  # {purpose}", highlight=False)
        console.print(f"  {command}", highlight=False, soft_wrap=True)

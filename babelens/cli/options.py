"""Arguments and options that several commands share, each defined once."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from .checks import checked_model

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="The model: a folder, or a name on the Hugging Face Hub.", callback=checked_model
    ),
]

CAPTIONED_IMAGES = "a folder with a `metadata.jsonl`, parquet files, a CSV file, or a data set on the Hub"
PUBLISHED_TOO = (
    f"{CAPTIONED_IMAGES}; or a published data set, from its files as they are published, with --option: `multi30k`, "
    "`flickr30k`, `coco`, `wit`, `cc3m`, `cc12m`, `cc300k`"
)
SourceOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="An option of the reader of the data, such as `folder=data/multi30k`; may be repeated.",
    ),
]
ImageColumn = Annotated[
    str | None, typer.Option(help="The column of images, if it is not called `image`.", metavar="COLUMN")
]
CaptionColumn = Annotated[
    list[str] | None,
    typer.Option(
        help="The column of captions, if it is not called `caption`, `captions` or `text`; or a column for each "
        "language, as in `--caption-column pl=title --caption-column uk=title_ukrainian`.",
        metavar="COLUMN",
    ),
]
LanguageColumn = Annotated[
    str | None, typer.Option(help="The column with the language of each row's captions.", metavar="COLUMN")
]

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a key of the recipe: `--set training.max_steps=100`, `--set stages.NAME.languages=[de]`. "
        "May be given several times.",
        metavar="KEY=VALUE",
    ),
]


def columns_as_options(image: str | None, caption: list[str] | None, language: str | None) -> list[str]:
    """The options of columns as those of a source, `NAME=VALUE` with values in YAML.

    Raises:
        typer.BadParameter: for several columns of captions of which one has no language.
    """
    given: dict[str, Any] = {"image_column": image, "language_column": language}
    if caption:
        pairs = [each.partition("=") for each in caption]
        if len(pairs) > 1 and not all(found for _, found, _ in pairs):
            raise typer.BadParameter("several columns are given as LANGUAGE=COLUMN", param_hint="--caption-column")
        given["caption_column"] = {tag: name for tag, _, name in pairs} if pairs[0][1] else caption[0]
    return [f"{name}={json.dumps(value)}" for name, value in given.items() if value is not None]


def settings_of(texts: list[str] | None) -> dict[str, str]:
    """The keys and the values, in YAML, of options --set."""
    settings = {}
    for text in texts or ():
        key, found, value = text.partition("=")
        if not found:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
        settings[key] = value
    return settings


TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run Python code that comes with a model, and kernels that it names. Use it for models that you trust.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
BatchSize = Annotated[int, typer.Option(help="Number of images or texts that are encoded at a time.", min=1)]
TruncateDim = Annotated[
    int | None,
    typer.Option(
        help="First dimensions of every embedding to keep; by default as the model's configuration says.",
        min=1,
    ),
]
Languages = Annotated[
    str | None,
    typer.Option(help="Tags separated by commas, such as `en,de,zh-Hant`; by default all languages of the data."),
]
Split = Annotated[str | None, typer.Option(help="The split of the data to read, of several.")]


def locked_file(context: typer.Context, file: Path | None) -> Path | None:
    """Locks the file of the results until the command has ended. A second one that would write it stops at once."""
    if file is not None:
        from ..utils.files import locked_path

        context.with_resource(locked_path(file))
    return file


ResultsFile = Annotated[
    Path | None,
    typer.Option(
        "--output", help="Write the results into this file too, as JSON.", dir_okay=False, callback=locked_file
    ),
]

TextTask = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="The head for texts, of a model that has one for each task: `text_text` gives the space in which MURAL "
        "compares texts with texts. Without this option, texts are in the space of the images.",
    ),
]


def split_tags(languages: str) -> list[str]:
    """The language tags of an option such as `en,de,zh-Hant`."""
    return [tag.strip() for tag in languages.split(",") if tag.strip()]


def tags_of(languages: str | None) -> list[str] | None:
    """The language tags of an option --languages; None where it is left out."""
    if languages is None:
        return None
    if not (tags := split_tags(languages)):
        raise typer.BadParameter(f"{languages!r} names no language", param_hint="--languages")
    return tags

"""Reading the data that a command names, as `babelens train` reads the source of a recipe."""

import inspect
from collections.abc import Sequence
from typing import Any

import typer
from datasets import Dataset

from ..configuration.errors import RecipeError
from ..data.corpus.images import SkippedImage
from ..workflows.recipe import DataSource
from ..workflows.recipe_file import check_known, parse, value_of

_HINT = "--option"


def read_source(
    source: str, options: Sequence[str] | None = None, *, translations: bool = False, **given: Any
) -> Dataset:
    """The caption corpus, or the translation corpus, of a source.

    Args:
        source: a source of recipes: a folder, a file, a Hub id, or a published data set.
        options: `NAME=VALUE`, the options of its reader; values are YAML, as in a recipe.
        translations: whether translations are read.
        given: arguments of the reader that the command has options for; those that are None are left out.

    Raises:
        typer.BadParameter: for an option that the reader does not have, or a value that it cannot have.
        CorpusError and its kin: as the reader.
    """
    try:
        data = DataSource(source, options=_parsed(options or ()))
        kinds = data.option_types(translations=translations)
        for name, value in data.options.items():
            check_known(name, kinds, "option ")
            value_of(kinds[name], value, name)
    except RecipeError as error:
        raise typer.BadParameter(str(error), param_hint=_HINT) from error
    arguments = {name: value for name, value in given.items() if value is not None}
    parameters = inspect.signature(data.loader(translations=translations)).parameters
    for name in arguments:
        if name not in parameters:
            raise typer.BadParameter(f"{source} is read without it", param_hint=f"--{name.replace('_', '-')}")
    if "streaming" in parameters and "streaming" not in data.options:
        arguments["streaming"] = False
    corpus = data.load(translations=translations, **arguments)
    if not isinstance(corpus, Dataset):
        raise typer.BadParameter(f"{source} is a stream, which has no end: it is for training", param_hint=_HINT)
    return corpus


def read_captions(
    source: str,
    options: Sequence[str] | None,
    *,
    language: str | None,
    split: str | None,
    skip_bad_images: bool,
) -> tuple[Dataset, list[SkippedImage]]:
    """The caption corpus of a source, and the images that were left out of it.

    Args:
        source, options: as those of `read_source`.
        language: the language of captions that are plain text; None where they tell theirs.
        split: the split, where there are several.
        skip_bad_images: whether images that cannot be read are left out.

    Raises: as `read_source`.
    """
    skipped: list[SkippedImage] = []
    bad: dict[str, Any] = {"on_bad_image": "skip", "skipped": skipped} if skip_bad_images else {}
    return read_source(source, options, language=language, split=split, **bad), skipped


def _parsed(options: Sequence[str]) -> dict[str, Any]:
    parsed = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not (name and equals):
            raise RecipeError(f"{option!r} is not NAME=VALUE, such as folder=data/multi30k")
        parsed[name] = parse(value)
    return parsed

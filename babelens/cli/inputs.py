"""The models and the data that commands are given; an error that comes up is one of the argument that names them."""

import inspect
import logging
from collections.abc import Sequence
from typing import Any

import typer
from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ..inference.embedder import Embedder
from ..inference.region_extraction import RegionExtractor
from ..inference.translation import Translator, TranslatorsByPair
from ..inference.translation_cache import open_translator
from ..registry import METHODS
from ..training.recipe import DataSource
from ..training.recipe_file import build, check_known, parse, validate
from ..utils.errors import (
    BabelensError,
    HubUnreachableError,
    ModelFolderError,
    RecipeError,
)
from ..utils.pretrained import load_config

logger = logging.getLogger(__name__)


def load_embedder(model: str, *, hint: str = "MODEL", **options: Any) -> Embedder:
    """The embedder of a command's MODEL, or of the option `hint`; `options` are those of `Embedder.from_pretrained`.

    Raises:
        typer.BadParameter: when there is no such model, or it is no dual encoder.
    """
    try:
        return Embedder.from_pretrained(model, **options)
    except (BabelensError, OSError) as error:
        raise typer.BadParameter(str(error), param_hint=hint) from error


def load_retrieval_embedder(model: str, **options: Any) -> Embedder:
    """As `load_embedder`; for a model of a task the error tells how such a model is evaluated."""
    try:
        return load_embedder(model, **options)
    except typer.BadParameter as error:
        if isinstance(error.__cause__, HubUnreachableError) or not _is_for_tasks(model):
            raise
        raise typer.BadParameter(
            f"{model} computes no embeddings; name its task by a recipe, such as --recipe emoji/rc3/entailment, "
            "--recipe rc3/xvnli or a file",
            param_hint="MODEL",
        ) from error


def _is_for_tasks(model: str) -> bool:
    try:
        method = METHODS.get(load_config(model).model_type)
    except ModelFolderError:
        return False
    return method is not None and method.task_workflow is not None


def load_region_finder(
    regions: str, grid: int | None, model: PreTrainedModel, processor: ProcessorMixin, **code: Any
) -> RegionExtractor:
    """The model of the options --regions and --grid that finds regions for another model, on the device of that one.

    Raises:
        typer.BadParameter: when there is no such model, or it finds no regions.
    """
    try:
        finder = RegionExtractor.from_pretrained(regions, grid=grid, max_regions=processor.max_regions, **code)
    except (BabelensError, OSError) as error:
        raise typer.BadParameter(str(error), param_hint="--regions") from error
    finder.model.to(model.device)
    return finder


def load_translator(given: str, to: str | None, trust_remote_code: bool, option: str) -> Translator:
    """The translator of an option, which keeps its translations on disk.

    Args:
        given: one model, or a file of translations; or, into one language, `de=MODEL,fr=MODEL`.
        to: the language that texts are translated into; None for any.
        option: the option, for error messages.
        trust_remote_code: whether to run code that comes with the models.

    Raises:
        typer.BadParameter: when a model is not there, or of another kind, or does not state its languages.
    """
    code: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    try:
        if to is None or "=" not in given:
            return open_translator(given, **code)
        models = dict(part.split("=", 1) for part in given.split(","))
        translators = {(tag, to): open_translator(name, pair=(tag, to), **code) for tag, name in models.items()}
        return TranslatorsByPair(translators)
    except (BabelensError, OSError) as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


# ---- Data, read as babelens train reads the source of a recipe ----

_HINT = "--option"


def read_source(
    source: str, options: Sequence[str] | None = None, *, translations: bool = False, **given: Any
) -> Dataset:
    """The caption corpus, or the translation corpus, of a source. Images that cannot be read are skipped, with a
    warning that counts and names them.

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
        data = build(DataSource, {"source": source, "options": _parsed(options or ())})
        kinds = data.option_types(translations=translations)
        for name, value in data.options.items():
            check_known(name, kinds, "option ")
            validate(kinds[name], value, name)
    except RecipeError as error:
        raise typer.BadParameter(str(error), param_hint=_HINT) from error
    arguments = {name: value for name, value in given.items() if value is not None}
    parameters = inspect.signature(data.loader(translations=translations)).parameters
    if "on_bad_image" in parameters and not {"on_bad_image", "check_images"} & {*data.options}:
        arguments = {"on_bad_image": "skip"} | arguments
    if "skipped" not in parameters:
        arguments.pop("skipped", None)
    for name in arguments:
        if name not in parameters:
            raise typer.BadParameter(f"{source} is read without it", param_hint=f"--{name.replace('_', '-')}")
    if "streaming" in parameters and "streaming" not in data.options:
        arguments["streaming"] = False
    corpus = data.load(translations=translations, **arguments)
    if not isinstance(corpus, Dataset):
        raise typer.BadParameter(f"{source} is a stream, which has no end: it is for training", param_hint=_HINT)
    return corpus


def _parsed(options: Sequence[str]) -> dict[str, Any]:
    parsed = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not (name and equals):
            raise RecipeError(f"{option!r} is not NAME=VALUE, such as folder=data/multi30k")
        parsed[name] = parse(value)
    return parsed

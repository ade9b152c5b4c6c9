"""`babelens train`: trains a model by a recipe."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..utils.errors import RecipeError
from ..utils.identity import check_free
from ..utils.redaction import typed_command
from .common import (
    Settings,
    TrustRemoteCode,
    begin_work,
    check_recipe,
    plain_console,
    settings_of,
    show_next,
)

if TYPE_CHECKING:
    from ..training.base import RecipeRun


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="A recipe file, or the name of a recipe that comes with babelens: `emoji/mural`.",
            callback=check_recipe,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(help="The folder for the model.", show_default="`runs/` and the recipe's name"),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue from the newest complete checkpoint, with the same data. The resulting weights equal "
            "those of an uninterrupted run, unless a warning says what has changed.",
        ),
    ] = False,
    settings: Settings = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Train a model by a recipe, evaluate it, and write its card.

    Pass the model's folder to `AutoModel.from_pretrained`, `babelens search` and `babelens push`. To train on several
    devices: `python -m torch.distributed.run --nproc_per_node 8 -m babelens train RECIPE`.
    """
    overrides = settings_of(settings)
    if output is not None and not resume:
        check_free(output)
    begin_work()
    from ..utils.files import locked
    from .tables import print_run

    run = _run(recipe, _changes(overrides), output or _default_output(recipe), trust_remote_code)
    with locked(run.output):
        trainer = run.train(resume=resume)
        if not trainer.is_world_process_zero():
            return
        report = run.report()
        run.write_card(trainer, report)
    console = plain_console()
    print_run(run, report, console)
    languages = [*run.data.image_languages, *run.data.pair_languages]
    searches = run.recipe.method != "rc3"  # RC3 reads an image and a text together
    show_next(console, run.output, next(iter(languages), None), searches=searches)


def _run(recipe: str, changes: dict[str, object], output: Path, trust_remote_code: bool) -> "RecipeRun":
    from ..training.base import RecipeRun
    from ..training.loading import load_recipe

    command = typed_command("babelens")
    return RecipeRun(load_recipe(recipe, changes), output, command, trust_remote_code=trust_remote_code)


def _default_output(recipe: str) -> Path:
    from ..training.recipe_file import run_name

    return Path("runs") / run_name(recipe)


def _changes(overrides: dict[str, str]) -> dict[str, object]:
    return {key: _parsed(key, value) for key, value in overrides.items()}


def _parsed(key: str, value: str) -> object:
    from ..training.recipe_file import parse

    try:
        return parse(value)
    except RecipeError as error:
        raise RecipeError(f"--set {key}: {error}") from error

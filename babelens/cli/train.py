"""`babelens train`: trains a model by a recipe."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..model_folders import check_free
from ..utils.errors import RecipeError
from ..utils.redaction import typed_command
from .common import TrustRemoteCode, begin_work, check_recipe, plain_console, show_next

if TYPE_CHECKING:
    from ..training.run import RecipeRun


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="A recipe: a file, or the name of one in babelens, such as `emoji/mural`.",
            callback=check_recipe,
        ),
    ],
    output: Annotated[
        Path | None, typer.Option(help="The folder for the model.", show_default="`runs/` and the recipe's name")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue from the newest complete checkpoint, to the weights of an uninterrupted run."
        ),
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change a key of the recipe: `training.max_steps=100`, `stages.NAME.languages=[de]`. Repeatable.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Train a model by a recipe, evaluate it, and write its card.

    Pass the model's folder to `AutoModel.from_pretrained`, `babelens search` and `babelens push`. To train on several
    devices: `python -m torch.distributed.run --nproc_per_node 8 -m babelens train RECIPE`.
    """
    changes = dict(_change(text) for text in settings or ())
    if output is not None and not resume:
        check_free(output)
    begin_work()
    from ..training.recipe_file import run_name
    from .tables import print_run

    output = output or Path("runs") / run_name(recipe)
    done = run_recipe(recipe, changes, output, resume=resume, trust_remote_code=trust_remote_code)
    if done is None:
        return
    run, report = done
    console = plain_console()
    print_run(run, report, console)
    languages = [*run.data.image_languages, *run.data.pair_languages]
    searches = run.recipe.method != "rc3"  # RC3 reads an image and a text together
    show_next(console, run.output, next(iter(languages), None), searches=searches)


def run_recipe(
    recipe: str, settings: dict[str, Any], output: Path, *, resume: bool, trust_remote_code: bool = False
) -> "tuple[RecipeRun, dict[str, Any] | None] | None":
    """Trains a recipe, evaluates it and writes its card; the run and its report, or None in other processes."""
    from ..training.run import RecipeRun
    from ..training.schema import load_recipe
    from ..utils.files import ensure_parents

    command = typed_command("babelens")
    run = RecipeRun(load_recipe(recipe, settings), output, command, trust_remote_code=trust_remote_code)
    with ensure_parents(output):
        trainer = run.train(resume=resume)
        if not trainer.is_world_process_zero():
            return None
        return run, run.report(trainer)


def _change(text: str) -> tuple[str, object]:
    """The key and the value, in YAML, of a --set."""
    from ..training.recipe_file import parse

    key, found, value = text.partition("=")
    if not found:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    try:
        return key, parse(value)
    except RecipeError as error:
        raise RecipeError(f"--set {key}: {error}") from error

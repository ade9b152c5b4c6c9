"""`babelens train`: a recipe becomes a model folder."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..configuration.errors import RecipeError
from ..trainers.output_lock import locked
from ..workflows.base import recipe_run
from ..workflows.recipe import find_recipe, load_recipe
from ..workflows.recipe_file import parse
from .console import plain_console
from .options import TrustRemoteCode
from .tables import print_run


def train(
    recipe: Annotated[
        str, typer.Argument(help="A recipe file, or the name of one that comes with babelens: `emoji/mural`.")
    ],
    output: Annotated[
        Path | None, typer.Option(help="Folder for the model; default: `runs/` and the recipe's name.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on from the newest complete checkpoint, to the same weights as an unbroken run. The data must be "
            "those that the run began with.",
        ),
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change a key of the recipe: `--set training.max_steps=100`. May be repeated.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Train a model as a recipe says, evaluate it, and write its card.

    The folder can be given to `AutoModel.from_pretrained`, to `babelens search`, and to `babelens push`. On several
    devices: `python -m torch.distributed.run --nproc_per_node 8 -m babelens train RECIPE`.
    """
    overrides = dict(_setting(text) for text in settings or [])
    output = output or Path("runs") / find_recipe(recipe).with_suffix("").name
    command = shlex.join(["babelens", *sys.argv[1:]])
    run = recipe_run(load_recipe(recipe, overrides), output, command, trust_remote_code=trust_remote_code)
    with locked(output):
        trainer = run.train(resume=resume)
        if not trainer.is_world_process_zero():
            return
        report = run.report()
        run.write_card(trainer, report)
    if as_json:
        typer.echo(json.dumps(report))
    else:
        print_run(run, report, plain_console())


def _setting(text: str) -> tuple[str, object]:
    key, found, value = text.partition("=")
    if not found:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    try:
        return key, parse(value)
    except RecipeError as error:
        raise RecipeError(f"--set {key}: {error}") from error

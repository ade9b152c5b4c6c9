"""Training by a recipe, for `babelens train`."""

import json
import shlex
import sys
from pathlib import Path

import typer

from ...configuration.errors import RecipeError
from ...trainers.output_lock import locked
from ...workflows.base import recipe_run
from ...workflows.loading import load_recipe
from ...workflows.recipe import find_recipe
from ...workflows.recipe_file import parse
from ..console import plain_console
from .tables import print_run


def train_recipe(
    recipe: str,
    overrides: dict[str, str],
    *,
    output: Path | None,
    resume: bool,
    trust_remote_code: bool,
    as_json: bool,
) -> None:
    """Trains and evaluates a model, writes its card, and shows the results.

    Args:
        recipe: file or name of the recipe.
        overrides: keys of the recipe to change, with their values in YAML.
        output: the folder for the model; by default `runs/` and the recipe's name.
        resume: continue a run that was interrupted.
        trust_remote_code: run code that comes with models that the recipe names.
        as_json: print the report as JSON.
    """
    changes = {key: _parsed(key, value) for key, value in overrides.items()}
    output = output or Path("runs") / find_recipe(recipe).with_suffix("").name
    command = shlex.join(["babelens", *sys.argv[1:]])
    run = recipe_run(load_recipe(recipe, changes), output, command, trust_remote_code=trust_remote_code)
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


def _parsed(key: str, value: str) -> object:
    try:
        return parse(value)
    except RecipeError as error:
        raise RecipeError(f"--set {key}: {error}") from error

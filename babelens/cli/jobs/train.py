"""Training by a recipe, for `babelens train`."""

import json
import logging
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import typer

from ...configuration.errors import RecipeError
from ...configuration.output_lock import is_first_process, locked
from ...reports.page import write_report
from ...workflows.base import RecipeRun, recipe_run
from ...workflows.loading import load_recipe
from ...workflows.recipe import find_recipe
from ...workflows.recipe_file import parse
from ...workflows.resuming import check_finished
from ...workflows.run_results import read_seeds
from ...workflows.seeds import is_finished_run, seed_folder
from ..console import plain_console
from .compare import show_comparison
from .tables import print_run

logger = logging.getLogger(__name__)


def train_recipe(
    recipe: str,
    overrides: dict[str, str],
    *,
    output: Path | None,
    resume: bool,
    report: bool,
    trust_remote_code: bool,
    as_json: bool,
) -> None:
    """Trains and evaluates a model, writes its card, and shows the results.

    Args:
        recipe: file or name of the recipe.
        overrides: keys of the recipe to change, with their values in YAML.
        output: the folder for the model; by default `runs/` and the recipe's name.
        resume: continue a run that was interrupted.
        report: write the report about the run.
        trust_remote_code: run code that comes with models that the recipe names.
        as_json: print the report as JSON.
    """
    run = _run(recipe, _changes(overrides), output or _default_output(recipe), trust_remote_code)
    with _only_results(as_json):
        trained = _trained(run, resume=resume, report=report)
    if trained is None:
        return
    if as_json:
        typer.echo(json.dumps(trained.report))
    else:
        print_run(run, trained.report, plain_console())


def train_seeds(
    recipe: str,
    overrides: dict[str, str],
    seeds: list[int],
    *,
    output: Path | None,
    report: bool,
    trust_remote_code: bool,
    as_json: bool,
) -> None:
    """Trains a run for each seed in `output/seed-<seed>`, and shows the means of their results. A finished run is
    skipped, and an interrupted one continued.

    Args:
        seeds: the seeds.
        recipe, overrides, output, report, trust_remote_code, as_json: as in `train_recipe`.

    Raises:
        FileExistsError: when `output` holds a run of its own.
        ChangedRunError: when a finished run is one of another recipe, or of other data.
    """
    output = output or _default_output(recipe)
    if is_finished_run(output):
        raise FileExistsError(f"{output} holds a run already: choose another folder for the runs with seeds")
    changes = _changes(overrides)
    level = logging.INFO if is_first_process() else logging.DEBUG
    for number, seed in enumerate(seeds, 1):
        run = _run(recipe, changes | {"training.seed": seed}, seed_folder(output, seed), trust_remote_code)
        if is_finished_run(run.output):
            check_finished(run)
            logger.log(level, "seed %d (%d of %d): finished already in %s", seed, number, len(seeds), run.output)
            continue
        logger.log(level, "seed %d (%d of %d): trained in %s", seed, number, len(seeds), run.output)
        with _only_results(as_json):
            _trained(run, resume=True, report=report)
    if is_first_process():
        logger.info("models and cards: %s", ", ".join(str(seed_folder(output, seed)) for seed in seeds))
        results = read_seeds(output)
        if report:
            write_report(output)
        if results[0].scores:
            show_comparison({output.name: results}, None, "json" if as_json else "table")


@contextmanager
def _only_results(as_json: bool) -> Iterator[None]:
    """Keeps what transformers prints while it trains from the standard output, where the results go as JSON."""
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        yield


class _Trained(NamedTuple):
    """The results of a trained run, which its first process prints."""

    report: dict[str, Any] | None


def _trained(run: RecipeRun, *, resume: bool, report: bool) -> _Trained | None:
    """Trains and evaluates a run, and writes its card, and its report where that is asked for; None in all processes
    but the first."""
    with locked(run.output):
        trainer = run.train(resume=resume)
        if not trainer.is_world_process_zero():
            return None
        results = run.report()
        run.write_card(trainer, results)
        if report:
            write_report(run.output)
    return _Trained(results)


def _run(recipe: str, changes: dict[str, object], output: Path, trust_remote_code: bool) -> RecipeRun:
    command = shlex.join(["babelens", *sys.argv[1:]])
    return recipe_run(load_recipe(recipe, changes), output, command, trust_remote_code=trust_remote_code)


def _default_output(recipe: str) -> Path:
    return Path("runs") / find_recipe(recipe).with_suffix("").name


def _changes(overrides: dict[str, str]) -> dict[str, object]:
    return {key: _parsed(key, value) for key, value in overrides.items()}


def _parsed(key: str, value: str) -> object:
    try:
        return parse(value)
    except RecipeError as error:
        raise RecipeError(f"--set {key}: {error}") from error

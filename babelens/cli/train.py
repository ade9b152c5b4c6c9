"""`babelens train`: a recipe becomes a model folder."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..configuration.errors import RecipeError
from ..configuration.redaction import typed_command
from .console import next_commands, plain_console, show_next
from .options import AsJson, Settings, TrustRemoteCode, settings_of
from .starting import begin_work

if TYPE_CHECKING:
    from ..workflows.base import RecipeRun


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE", help="A recipe file, or the name of one that comes with babelens: `emoji/mural`."
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
            help="Continue from the newest complete checkpoint. The data must be those that the run began with. The "
            "weights are those of an uninterrupted run, unless a warning names what has changed.",
        ),
    ] = False,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="Train one run for each of these seeds, such as `1,2,3`, in the folders `seed-1`, `seed-2`, … of the "
            "output, and show the means. Finished runs are skipped, and interrupted ones are continued.",
        ),
    ] = None,
    settings: Settings = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Train a model by a recipe, evaluate it, and write its card.

    `AutoModel.from_pretrained`, `babelens search` and `babelens push` take the folder of the model. To train on
    several devices: `python -m torch.distributed.run --nproc_per_node 8 -m babelens train RECIPE`.
    """
    overrides = settings_of(settings)
    numbers = None if seeds is None else _seeds(seeds)
    if numbers and "training.seed" in overrides:
        raise typer.BadParameter("training.seed is set as well: give one of the two", param_hint="--seeds")
    begin_work()

    if numbers is None:
        _train_one(recipe, overrides, output, resume, trust_remote_code, as_json)
    else:
        _train_seeds(recipe, overrides, output, numbers, trust_remote_code, as_json)


def _seeds(text: str) -> list[int]:
    """The seeds of an option --seeds."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) < 2**32 for part in parts):
        raise typer.BadParameter(f"{text!r} is no list of seeds, such as 1,2,3", param_hint="--seeds")
    seeds = [int(part) for part in parts]
    if len(set(seeds)) < len(seeds):
        raise typer.BadParameter(f"{text!r} names a seed twice", param_hint="--seeds")
    return seeds


logger = logging.getLogger(__name__)


def _train_one(
    recipe: str,
    overrides: dict[str, str],
    output: Path | None,
    resume: bool,
    trust_remote_code: bool,
    as_json: bool,
) -> None:
    from .tables import print_run

    run = _run(recipe, _changes(overrides), output or _default_output(recipe), trust_remote_code)
    with _only_results(as_json):
        trained = _trained(run, resume=resume)
    if trained is None:
        return
    if as_json:
        typer.echo(json.dumps(trained.report))
    else:
        console = plain_console()
        print_run(run, trained.report, console)
        languages = [*run.data.image_languages, *run.data.pair_languages]
        searches = run.recipe.method != "rc3"  # which reads an image and a text together
        show_next(console, next_commands(run.output, next(iter(languages), None), searches=searches))


def _train_seeds(
    recipe: str,
    overrides: dict[str, str],
    output: Path | None,
    seeds: list[int],
    trust_remote_code: bool,
    as_json: bool,
) -> None:
    """Trains a run for each seed in `output/seed-<seed>`, and shows the means of their results. A finished run is
    skipped, and an interrupted one continued.

    Raises:
        FileExistsError: when `output` holds a run of its own.
        ChangedRunError: when a finished run is one of another recipe, or of other data.
    """
    from ..configuration.locks import is_first_process
    from ..workflows.base import check_finished
    from ..workflows.run_results import is_finished_run, read_seeds, seed_folder
    from .compare import show_comparison

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
            _trained(run, resume=True)
    if is_first_process():
        logger.info("models and cards: %s", ", ".join(str(seed_folder(output, seed)) for seed in seeds))
        results = read_seeds(output)
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


def _trained(run: "RecipeRun", *, resume: bool) -> _Trained | None:
    """Trains and evaluates a run, and writes its card; None in all processes
    but the first."""
    from ..configuration.locks import locked

    with locked(run.output):
        trainer = run.train(resume=resume)
        if not trainer.is_world_process_zero():
            return None
        results = run.report()
        run.write_card(trainer, results)
    return _Trained(results)


def _run(recipe: str, changes: dict[str, object], output: Path, trust_remote_code: bool) -> "RecipeRun":
    from ..workflows.base import RecipeRun
    from ..workflows.loading import load_recipe

    command = typed_command("babelens")
    return RecipeRun(load_recipe(recipe, changes), output, command, trust_remote_code=trust_remote_code)


def _default_output(recipe: str) -> Path:
    from ..workflows.recipe import find_recipe

    return Path("runs") / find_recipe(recipe).with_suffix("").name


def _changes(overrides: dict[str, str]) -> dict[str, object]:
    return {key: _parsed(key, value) for key, value in overrides.items()}


def _parsed(key: str, value: str) -> object:
    from ..workflows.recipe_file import parse

    try:
        return parse(value)
    except RecipeError as error:
        raise RecipeError(f"--set {key}: {error}") from error

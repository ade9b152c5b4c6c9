"""`babelens train`: a recipe becomes a model folder."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .options import AsJson, Report, Settings, TrustRemoteCode, settings_of


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
    report: Report = True,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Train a model by a recipe, evaluate it, and write its card and a report (`report.html`).

    `AutoModel.from_pretrained`, `babelens search` and `babelens push` take the folder of the model. To train on
    several devices: `python -m torch.distributed.run --nproc_per_node 8 -m babelens train RECIPE`.
    """
    overrides = settings_of(settings)
    numbers = None if seeds is None else _seeds(seeds)
    if numbers and "training.seed" in overrides:
        raise typer.BadParameter("training.seed is set as well: give one of the two", param_hint="--seeds")
    from .jobs.train import train_recipe, train_seeds

    given: dict[str, Any] = {
        "output": output,
        "report": report,
        "trust_remote_code": trust_remote_code,
        "as_json": as_json,
    }
    if numbers is None:
        train_recipe(recipe, overrides, resume=resume, **given)
    else:
        train_seeds(recipe, overrides, numbers, **given)


def _seeds(text: str) -> list[int]:
    """The seeds of an option --seeds."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) < 2**32 for part in parts):
        raise typer.BadParameter(f"{text!r} is no list of seeds, such as 1,2,3", param_hint="--seeds")
    seeds = [int(part) for part in parts]
    if len(set(seeds)) < len(seeds):
        raise typer.BadParameter(f"{text!r} names a seed twice", param_hint="--seeds")
    return seeds

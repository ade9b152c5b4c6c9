"""`babelens train`: a recipe becomes a model folder."""

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson, TrustRemoteCode


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
            help="Continue from the newest complete checkpoint, to the same weights as an uninterrupted run. The "
            "data must be those that the run began with.",
        ),
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change a key of the recipe: `--set training.max_steps=100`. May be given several times.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Train a model by a recipe, evaluate it, and write its card.

    `AutoModel.from_pretrained`, `babelens search` and `babelens push` take the folder of the model. To train on
    several devices: `python -m torch.distributed.run --nproc_per_node 8 -m babelens train RECIPE`.
    """
    overrides = dict(_setting(text) for text in settings or [])
    from .jobs.train import train_recipe

    train_recipe(recipe, overrides, output=output, resume=resume, trust_remote_code=trust_remote_code, as_json=as_json)


def _setting(text: str) -> tuple[str, str]:
    """The key and the value, in YAML, of an option --set."""
    key, found, value = text.partition("=")
    if not found:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    return key, value

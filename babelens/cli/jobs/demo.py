"""The demo, for `babelens demo`: the whole way on the emoji benchmark, in a few minutes on two cores of any speed."""

import json
import shlex
import sys
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text
from transformers import AutoModel, AutoProcessor

from ...configuration.errors import UnknownLanguageError
from ...configuration.languages import normalize_language
from ...configuration.output_lock import locked
from ...data.batching.views import Images
from ...data.emoji.benchmark import load_emoji, published_manifest
from ...inference.embedder import Embedder
from ...inference.gallery import contact_sheet
from ...reports.page import write_report
from ...trainers.checkpoints import newest_checkpoint
from ...trainers.saving import atomic_directory
from ...workflows.base import CHECKPOINTS, EVALUATION, RecipeRun, recipe_run
from ...workflows.loading import load_recipe
from ...workflows.time_budget import seconds_of, stage_times, stages_of, steps_of, steps_within, with_steps
from ..console import plain_console
from .tables import print_run

_CHOSEN = "steps.json"
# The smallest share of a recipe's steps with which a model learns enough to be asked anything.
_LEAST = 2 / 7


def run_demo(recipe_name: str, output: Path, query: str, language: str, *, minutes: float, steps: int | None) -> None:
    """Trains the recipe of a demo, evaluates the model, writes its card, and searches with it.

    Args:
        recipe_name: the recipe.
        output: the folder for the model.
        query, language: what to search for at the end, and in which language.
        minutes: time for training, by which the number of steps is chosen.
        steps: the number of steps, where it is given.
    """
    console = plain_console()
    recipe = load_recipe(recipe_name)
    command = shlex.join(["babelens", *sys.argv[1:]])
    run = recipe_run(recipe, output, command)
    run.check()
    language = _known_language(language, run.data.readable_languages)
    with locked(output):
        chosen = _steps(run, 60 * minutes, steps, console)
        if steps is None:  # the command on the card repeats the run
            command += f" --steps {chosen}"
        run = recipe_run(with_steps(recipe, chosen), output, command)
        trainer = run.train(resume=True)
        report = run.report()
        run.write_card(trainer, report)
        write_report(output)
    print_run(run, report, console)
    _search(output, query, language, console)


def _steps(run: RecipeRun, seconds: float, asked: int | None, console: Console) -> int:
    """The number of steps: as many as the run was begun with, or as were asked for, or as fit into the time."""
    kept, own = run.output / CHECKPOINTS / _CHOSEN, steps_of(run.recipe)
    begun = None
    if kept.is_file():
        begun = json.loads(kept.read_text(encoding="utf-8"))["steps"]
    elif newest_checkpoint(run.output / CHECKPOINTS / run.recipe.all_stages[0].name):
        begun = own  # by an earlier version, which always took all steps
    if begun is not None:
        if asked not in (None, begun):
            raise typer.BadParameter(
                f"{run.output} was begun with {begun} steps: choose another --output", param_hint="--steps"
            )
        console.print(f"{run.output} was begun with {begun} steps, and keeps to them.", highlight=False)
        return begun
    steps = asked or _fitting_steps(run, seconds, own, console)
    with atomic_directory(run.output / CHECKPOINTS) as scratch:
        (scratch / _CHOSEN).write_text(json.dumps({"steps": steps}), encoding="utf-8")
    return steps


def _fitting_steps(run: RecipeRun, seconds: float, own: int, console: Console) -> int:
    console.print("Timing some steps, to see how many fit …")
    times = stage_times(run)
    steps = steps_within(seconds, times, fewest=round(_LEAST * own))
    each = ", ".join(
        f"{time.step:.2f} s" + (f" ({stage.name})" if stage.name else "")
        for stage, time in zip(stages_of(run.recipe), times, strict=True)
    )
    expected = seconds_of(times, steps)
    console.print(
        f"A step takes {each}: training {steps} of the recipe's {own} steps, about {expected / 60:.1f} minutes"
        + (" (fewer would teach it too little)" if expected > seconds else "")
        + f". --steps {steps} repeats this run.",
        highlight=False,
    )
    return steps


def _known_language(language: str, readable: list[str] | None) -> str:
    """The canonical spelling of the query's tag; a language that the search cannot use is refused before training.

    Raises:
        UnknownLanguageError: for a language in which the benchmark has no names, or which the model will not read.
    """
    tag, named = normalize_language(language), published_manifest()["languages"]
    if tag not in named:
        raise UnknownLanguageError(f"the emoji benchmark has no names in {tag!r}; it has {', '.join(named)}")
    if readable is not None and tag not in readable:
        raise UnknownLanguageError(f"this demo's model does not learn {tag!r}; it learns {', '.join(readable)}")
    return tag


def _search(output: Path, query: str, language: str, console: Console) -> None:
    """Loads the model by its Auto classes, and searches images by a vendor that was not in training."""
    embedder = Embedder(AutoModel.from_pretrained(output), AutoProcessor.from_pretrained(output))
    gallery = load_emoji(vendors=["noto"], languages=["en", language])
    images = Images(gallery)
    scores = embedder.encode_image(images) @ embedder.encode_text(query, language=language)[0]
    best = (-scores).argsort(kind="stable")[:8]
    console.print()
    console.print(Text(query, "bold"), f"({language}), asked of AutoModel.from_pretrained({str(output)!r}):")
    for position in best.tolist():
        names = {caption["language"]: caption["text"] for caption in gallery[position]["captions"]}
        console.print(f"  {scores[position]:.3f}  {gallery[position]['emoji']}  {names['en']}", highlight=False)
    sheet = output / EVALUATION / "search.png"
    contact_sheet(
        [images[position] for position in best.tolist()], [f"{scores[p]:.2f}" for p in best], columns=8
    ).save(sheet)
    console.print(f"Drawn in {sheet}")

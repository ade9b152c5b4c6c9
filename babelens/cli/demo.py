"""`babelens demo`: the whole way on the emoji benchmark, in a few minutes on two cores of any speed."""

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..configuration.errors import UnknownLanguageError
from ..configuration.languages import normalize_language
from ..configuration.redaction import typed_command
from .console import plain_console
from .starting import begin_work, start_measuring, take_fair_share

if TYPE_CHECKING:
    from rich.console import Console

    from ..workflows.base import RecipeRun
    from ..workflows.recipe import Recipe
    from ..workflows.time_budget import Pace, StageTime

# "red heart" in Swahili: the demo's model has seen translations into Swahili, but no image with a Swahili caption.
QUERY, LANGUAGE = "moyo mwekundu", "sw"
_CHOSEN = "steps.json"
# The smallest share of a recipe's steps with which a model learns enough to be asked anything.
_LEAST = 2 / 7
_LOOK = 0.5  # seconds in which the load of the machine is measured
_RECIPES, _SUFFIX = Path(__file__).parents[1] / "recipes", "-demo.yaml"
# The recipe of each method's demo.
DEMOS = {
    method: f"emoji/{method}-demo"
    for method in sorted(entry.name.removesuffix(_SUFFIX) for entry in (_RECIPES / "emoji").glob(f"*{_SUFFIX}"))
}


def demo(
    method: Annotated[str, typer.Option(help=f"The method to train: {', '.join(DEMOS)}.")] = "mural",
    output: Annotated[
        Path | None, typer.Option(help="The folder for the model.", show_default="runs/demo-METHOD")
    ] = None,
    query: Annotated[str, typer.Option(help="A description of the images to find at the end.")] = QUERY,
    language: Annotated[str, typer.Option(help="The language of the query, as a BCP-47 tag.")] = LANGUAGE,
    minutes: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Time for training, by which the number of steps is chosen. A run that is continued keeps its number "
            "of steps.",
        ),
    ] = 5.0,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Steps of training in all stages, instead of --minutes, to repeat an earlier run."),
    ] = None,
) -> None:
    """Train a small model on the emoji benchmark, evaluate it, write its card, load it back, and search with it.

    The benchmark has the images of four vendors for the same 1911 emoji, with names written by Unicode's volunteers.
    The first run fetches them from the npm registry and draws them, which takes a minute. Before training, the demo
    measures the time of a few steps, and shortens its schedule to what the machine can do in --minutes. Data and
    evaluation take one to two minutes more.
    """
    if method not in DEMOS:
        raise typer.BadParameter(
            f"there is no demo of {method!r}; there are those of {', '.join(DEMOS)}", param_hint="--method"
        )
    if not query.strip():
        raise typer.BadParameter("it is empty: describe the images to find", param_hint="--query")
    begin_work()

    from ..configuration.locks import locked
    from ..workflows.base import RecipeRun
    from ..workflows.loading import load_recipe
    from .tables import print_run

    output = output or Path("runs") / f"demo-{method}"
    console = plain_console()
    recipe = load_recipe(DEMOS[method])
    command = typed_command("babelens")
    run = RecipeRun(recipe, output, command)
    run.check()
    language = _known_language(language, run.data.readable_languages)
    with locked(output):
        chosen, times = _steps(run, 60 * minutes, steps, console)
        run = _run_of(recipe, chosen, output, command, steps)
        pace = _pace(run, times, console)
        trainer = run.train(resume=True)
        if pace is not None and pace.is_shortened:
            chosen = _keep(_steps_done(recipe, trainer), output)
            console.print(f"Trained {chosen} steps.", highlight=False)
            run = _run_of(recipe, chosen, output, command, steps)
        report = run.report()
        run.write_card(trainer, report)
    print_run(run, report, console)
    _search(output, query, language, console)


def _run_of(recipe: "Recipe", chosen: int, output: Path, command: str, asked: int | None) -> "RecipeRun":
    """The run of so many steps, with the command that repeats it."""
    from ..workflows.base import RecipeRun
    from ..workflows.time_budget import with_steps

    repeating = command if asked is not None else f"{command} --steps {chosen}"
    return RecipeRun(with_steps(recipe, chosen), output, repeating)


def _pace(run: "RecipeRun", times: "list[StageTime]", console: "Console") -> "Pace | None":
    """What keeps a run in its time; None for one whose steps were not timed."""
    from ..workflows.time_budget import Pace, planned_pace

    if not times:
        return None

    def take_less(step: float, planned: float) -> None:
        console.print(
            f"A step takes {step:.1f} s now, and took {planned:.2f} s: the schedule is shortened to end in time.",
            highlight=False,
        )
        start_measuring()
        time.sleep(_LOOK)
        take_fair_share()

    run.training.callbacks.append(pace := Pace(planned_pace(run.recipe, times), take_less))
    return pace


def _steps_done(recipe: "Recipe", trainer: Any) -> int:
    """The steps of a shortened run: a recipe of so many has no more in its last stage than were taken."""
    from ..workflows.time_budget import stages_of, steps_of

    return math.floor(trainer.state.global_step * steps_of(recipe) / stages_of(recipe)[-1].training["max_steps"])


def _keep(steps: int, output: Path) -> int:
    from ..trainers.checkpoints import atomic_directory
    from ..workflows.base import CHECKPOINTS

    with atomic_directory(output / CHECKPOINTS) as scratch:
        (scratch / _CHOSEN).write_text(json.dumps({"steps": steps}), encoding="utf-8")
    return steps


def _steps(run: "RecipeRun", seconds: float, asked: int | None, console: "Console") -> "tuple[int, list[StageTime]]":
    """The number of steps: as many as the run was begun with, or as were asked for, or as fit into the time; with the
    times by which they were chosen, if they were."""
    from ..trainers.checkpoints import newest_checkpoint
    from ..workflows.base import CHECKPOINTS
    from ..workflows.time_budget import steps_of

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
        return begun, []
    times = [] if asked else _timed(run, console)
    steps = asked or _fitting_steps(run, times, seconds, own, console)
    return _keep(steps, run.output), times


def _timed(run: "RecipeRun", console: "Console") -> "list[StageTime]":
    from ..workflows.time_budget import stage_times

    console.print("Timing some steps, to see how many fit …")
    return stage_times(run)


def _fitting_steps(run: "RecipeRun", times: "list[StageTime]", seconds: float, own: int, console: "Console") -> int:
    from ..workflows.time_budget import seconds_of, stages_of, steps_within

    steps = steps_within(seconds, times, fewest=round(_LEAST * own))
    each = ", ".join(
        f"{timed.step:.2f} s" + (f" ({stage.name})" if stage.name else "")
        for stage, timed in zip(stages_of(run.recipe), times, strict=True)
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
    from ..data.emoji.benchmark import published_manifest

    tag, named = normalize_language(language), published_manifest()["languages"]
    if tag not in named:
        raise UnknownLanguageError(f"the emoji benchmark has no names in {tag!r}; it has {', '.join(named)}")
    if readable is not None and tag not in readable:
        raise UnknownLanguageError(f"this demo's model does not learn {tag!r}; it learns {', '.join(readable)}")
    return tag


def _search(output: Path, query: str, language: str, console: "Console") -> None:
    """Loads the model by its Auto classes, and searches images by a vendor that was not in training."""
    from rich.text import Text
    from transformers import AutoModel, AutoProcessor

    from ..data.batching.views import Images
    from ..data.emoji.benchmark import load_emoji
    from ..inference.embedder import Embedder

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

"""`babelens demo`: the whole way on the emoji benchmark, in a few minutes on two cores of any speed."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text
from transformers import AutoModel, AutoProcessor

from ..configuration.errors import UnknownLanguageError
from ..configuration.languages import normalize_language
from ..data.batching.views import Images
from ..data.emoji.benchmark import load_emoji, published_manifest
from ..inference.embedder import Embedder
from ..inference.gallery import contact_sheet
from ..registry import METHODS
from ..trainers.checkpoints import newest_checkpoint
from ..trainers.output_lock import locked
from ..trainers.saving import atomic_directory
from ..workflows.base import CHECKPOINTS, EVALUATION, RecipeRun, recipe_run
from ..workflows.recipe import RECIPES, load_recipe
from ..workflows.time_budget import seconds_of, stage_times, stages_of, steps_of, steps_within, with_steps
from .console import plain_console
from .tables import print_run

# "red heart" in Swahili: the demo's model has seen translations into Swahili, but no image with a Swahili caption.
QUERY, LANGUAGE = "moyo mwekundu", "sw"
DEMOS = {method: f"emoji/{method}-demo" for method in METHODS if (RECIPES / f"emoji/{method}-demo.yaml").is_file()}
_CHOSEN = "steps.json"
# Part of a recipe's steps below which a model learns too little to be asked anything.
_LEAST = 2 / 7


def demo(
    method: Annotated[str, typer.Option(help=f"Which method: {', '.join(DEMOS)}.")] = "mural",
    output: Annotated[Path | None, typer.Option(help="Folder for the model; default: `runs/demo-METHOD`.")] = None,
    query: Annotated[str, typer.Option(help="What to look for at the end.")] = QUERY,
    language: Annotated[str, typer.Option(help="The query's language.")] = LANGUAGE,
    minutes: Annotated[
        float,
        typer.Option(min=0.1, help="Time for training, which decides how many steps it has; a run's number is kept."),
    ] = 5.0,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of training instead, in all stages, to repeat a run.")
    ] = None,
) -> None:
    """Train a small model on the emoji benchmark, evaluate it, write its card, load it back, and search with it.

    The images are real (four vendors draw the same 1911 emoji), the names are those of Unicode's volunteers. The
    first run fetches them from the npm registry and draws them, which takes a minute. Before it trains, it times a few
    steps, and shortens its schedule to what the machine can do in the time; data and evaluation take one to two
    minutes more.
    """
    if method not in DEMOS:
        raise typer.BadParameter(
            f"there is no demo of {method!r}; there are those of {', '.join(DEMOS)}", param_hint="--method"
        )
    if not query.strip():
        raise typer.BadParameter("it is empty: say what to look for", param_hint="--query")
    console = plain_console()
    output = output or Path("runs") / f"demo-{method}"
    recipe = load_recipe(DEMOS[method])
    command = shlex.join(["babelens", *sys.argv[1:]])
    run = recipe_run(recipe, output, command)
    run.check()
    language = _known_language(language, run.data.readable_languages)
    with locked(output):
        chosen = _steps(run, 60 * minutes, steps, console)
        if steps is None:  # what the card names repeats the run
            command += f" --steps {chosen}"
        run = recipe_run(with_steps(recipe, chosen), output, command)
        trainer = run.train(resume=True)
        report = run.report()
        run.write_card(trainer, report)
    print_run(run, report, console)
    _search(output, query, language, console)


def _steps(run: RecipeRun, seconds: float, asked: int | None, console: Console) -> int:
    """The number of steps: that with which the run was begun, the one asked for, or as many as fit into the time."""
    kept, own = run.output / CHECKPOINTS / _CHOSEN, steps_of(run.recipe)
    begun = None
    if kept.is_file():
        begun = json.loads(kept.read_text(encoding="utf-8"))["steps"]
    elif newest_checkpoint(run.output / CHECKPOINTS / run.recipe.all_stages[0].name):
        begun = own  # by a version that always took all
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
    """The tag's canonical spelling; the search comes last, and what it cannot ask in is refused before the training.

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
    """Loads the model as anybody would, and asks it for images by a vendor that it has not seen either."""
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

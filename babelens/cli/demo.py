"""`babelens demo`: the whole way on the emoji benchmark, in some minutes on two cores."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..utils.errors import UnknownLanguageError
from ..utils.languages import normalize_language
from ..utils.redaction import typed_command
from .console import plain_console
from .starting import begin_work

if TYPE_CHECKING:
    from rich.console import Console

    from ..training.recipe import Recipe, Stage

# "red heart" in Swahili: the demo's model has seen translations into Swahili, but no image with a Swahili caption.
QUERY, LANGUAGE = "moyo mwekundu", "sw"
# The arguments that count steps, all but the number of steps itself.
_COUNTS = ("warmup_steps", "eval_steps", "save_steps", "logging_steps")
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
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Steps of training in all stages.", show_default="those of the recipe"),
    ] = None,
) -> None:
    """Train a small model on the emoji benchmark, evaluate it, write its card, load it back, and search with it.

    The benchmark has the images of four vendors for the same 1911 emoji, with names written by Unicode's volunteers.
    The first run fetches them from the npm registry and draws them, which takes a minute. With fewer --steps, the
    schedule is shortened; a run that was interrupted goes on when the same command is given again.
    """
    if method not in DEMOS:
        raise typer.BadParameter(
            f"there is no demo of {method!r}; there are those of {', '.join(DEMOS)}", param_hint="--method"
        )
    if not query.strip():
        raise typer.BadParameter("it is empty: describe the images to find", param_hint="--query")
    begin_work()

    from ..training.base import RecipeRun
    from ..training.loading import load_recipe
    from ..utils.locks import locked
    from .tables import print_run

    output = output or Path("runs") / f"demo-{method}"
    console = plain_console()
    recipe = load_recipe(DEMOS[method])
    command = typed_command("babelens")
    run = RecipeRun(recipe if steps is None else _with_steps(recipe, steps), output, command)
    run.check()
    language = _known_language(language, run.data.readable_languages)
    with locked(output):
        trainer = run.train(resume=True)
        report = run.report()
        run.write_card(trainer, report)
    print_run(run, report, console)
    _search(output, query, language, console)


def _with_steps(recipe: "Recipe", steps: int) -> "Recipe":
    """The recipe with so many steps in all its stages together. Each stage keeps its share of them, and warm-up,
    evaluations and checkpoints keep theirs of the stage."""
    stages = [stage.model_copy(update={"training": recipe.training | stage.training}) for stage in recipe.all_stages]
    share = steps / sum(stage.training["max_steps"] for stage in stages)
    shortened = [_with_share(stage, share) for stage in stages]
    if recipe.stages:
        return recipe.model_copy(update={"stages": shortened})
    return recipe.model_copy(update={"training": shortened[0].training})


def _with_share(stage: "Stage", share: float) -> "Stage":
    changes = {"max_steps": max(round(stage.training["max_steps"] * share), 1)}
    for name in _COUNTS:
        if stage.training.get(name, 0) >= 1:  # below, it is a part of the steps already
            changes[name] = math.ceil(stage.training[name] * share)
    return stage.model_copy(update={"training": stage.training | changes})


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

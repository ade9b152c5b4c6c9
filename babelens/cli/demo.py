"""`babelens demo`: the whole way on the emoji benchmark, in a few minutes on two cores of any speed."""

from pathlib import Path
from typing import Annotated

import typer

# "red heart" in Swahili: the demo's model has seen translations into Swahili, but no image with a Swahili caption.
QUERY, LANGUAGE = "moyo mwekundu", "sw"
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
    from .jobs.demo import run_demo

    run_demo(
        DEMOS[method],
        output or Path("runs") / f"demo-{method}",
        query,
        language,
        minutes=minutes,
        steps=steps,
    )

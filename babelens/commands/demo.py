"""`babelens demo`: the whole way on the emoji benchmark, in a few minutes on two cores."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text
from transformers import AutoModel, AutoProcessor

from ..data.emoji import load_emoji
from ..data.views import Pictures
from ..evaluation.console import plain_console
from ..evaluation.embedder import Embedder
from ..evaluation.gallery import contact_sheet
from ..methods import METHODS
from ..recipe import RECIPES, load_recipe
from ..run import EVALUATION, recipe_run

# "red heart" in Swahili: the demo's model has seen translations into Swahili, but no picture with a Swahili caption.
QUERY, LANGUAGE = "moyo mwekundu", "sw"
DEMOS = {method: f"emoji/{method}-demo" for method in METHODS if (RECIPES / f"emoji/{method}-demo.yaml").is_file()}


def demo(
    method: Annotated[str, typer.Option(help=f"Which method: {', '.join(DEMOS)}.")] = "mural",
    output: Annotated[Path | None, typer.Option(help="Folder for the model; default: `runs/demo-METHOD`.")] = None,
    query: Annotated[str, typer.Option(help="What to look for at the end.")] = QUERY,
    language: Annotated[str, typer.Option(help="The query's language.")] = LANGUAGE,
) -> None:
    """Train a small model on the emoji benchmark, evaluate it, write its card, load it back, and search with it.

    The pictures are real (four vendors draw the same 1911 emoji), the names are those of Unicode's volunteers. The
    first run fetches them from the npm registry and draws them, which takes a minute.
    """
    if method not in DEMOS:
        raise typer.BadParameter(
            f"there is no demo of {method!r}; there are those of {', '.join(DEMOS)}", param_hint="--method"
        )
    console = plain_console()
    output = output or Path("runs") / f"demo-{method}"
    run = recipe_run(load_recipe(DEMOS[method]), output, command=shlex.join(["babelens", *sys.argv[1:]]))
    trainer = run.train(resume=True)
    report = run.report()
    run.write_card(trainer, report)
    run.print_summary(report, console)
    _search(output, query, language, console)


def _search(output: Path, query: str, language: str, console: Console) -> None:
    """Loads the model as anybody would, and asks it for pictures by a vendor that it has not seen either."""
    embedder = Embedder(AutoModel.from_pretrained(output), AutoProcessor.from_pretrained(output))
    gallery = load_emoji(vendors=["noto"], languages=["en", language])
    pictures = Pictures(gallery)
    scores = embedder.encode_image(pictures) @ embedder.encode_text(query, language=language)[0]
    best = (-scores).argsort(kind="stable")[:8]
    console.print()
    console.print(Text(query, "bold"), f"({language}), asked of AutoModel.from_pretrained({str(output)!r}):")
    for position in best.tolist():
        names = {caption["language"]: caption["text"] for caption in gallery[position]["captions"]}
        console.print(f"  {scores[position]:.3f}  {gallery[position]['emoji']}  {names['en']}", highlight=False)
    sheet = output / EVALUATION / "search.png"
    contact_sheet(
        [pictures[position] for position in best.tolist()], [f"{scores[p]:.2f}" for p in best], columns=8
    ).save(sheet)
    console.print(f"Drawn in {sheet}")

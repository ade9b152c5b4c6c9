"""`babelens demo`: shows the whole workflow from scratch, in a few minutes on two cores."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..utils.redaction import typed_command
from .common import begin_work, cells, plain_console, results_table
from .train import run_recipe

if TYPE_CHECKING:
    from datasets import Dataset
    from rich.console import Console

    from ..inference.embedder import Embedder

ACQUIRE = "acquire"
# The recipe for each method; by default an English model, which then acquires languages.
RECIPES = {
    ACQUIRE: "emoji/align:demo",
    "mural": "emoji/mural:demo",
    "etcl": "emoji/etcl/etcl:demo",
    "mla": "emoji/mla/demo",
    "rc3": "emoji/rc3/entailment:demo",
    "smalr": "emoji/smalr/demo",
}
# Models to train first: the folder, the recipe, and the key of later recipes that names the folder.
PREPARED = {
    "rc3": (
        ("backbone", "emoji/rc3/backbone:demo", "backbone"),
        ("pretrained", "emoji/rc3/pretrain:demo", "model.from_pretrained"),
    )
}
LANGUAGES = ("mi", "uk", "sw")
_HEART = "❤️"  # whose name in CLDR is searched for
_VENDORS, _UNSEEN_VENDOR = ["twemoji", "openmoji", "fluent"], "noto"
_SHOWN = 5


def demo(
    method: Annotated[
        str, typer.Option(help=f"What to show: {ACQUIRE}, or the training of {', '.join(list(RECIPES)[1:])}.")
    ] = ACQUIRE,
    output: Annotated[
        Path | None, typer.Option(help="The folder for the models.", show_default="runs/demo-METHOD")
    ] = None,
) -> None:
    """Train a small English model on emoji, teach it Māori, Ukrainian and Swahili in seconds, and search in them.

    Four vendors drew images of the same 1911 emoji, and Unicode's volunteers named them for CLDR. The model trains on
    three vendors and searches the images of the fourth. The first run fetches names and images from the npm registry
    and renders them, which takes a minute. Repeat the command to resume an interrupted run.

    With --method, the demo trains and evaluates one of the published methods instead. RC3 decides whether a name fits
    an image; with the others, the demo searches in Swahili.
    """
    if method not in RECIPES:
        raise typer.BadParameter(f"there is no {method!r}; there are {', '.join(RECIPES)}", param_hint="--method")
    begin_work()
    from ..data.emoji.benchmark import load_emoji
    from ..inference.embedder import Embedder
    from ..utils.identity import holds_weights
    from .tables import print_run

    output, console = output or Path("runs") / f"demo-{method}", plain_console()
    first = (("english", RECIPES[ACQUIRE], ""),) if method == ACQUIRE else PREPARED.get(method, ())
    settings: dict[str, str] = {}
    for folder, recipe, key in first:
        if not holds_weights(output / folder):
            console.print(f"Training {recipe} into {output / folder} …")
            run_recipe(recipe, settings, output / folder, resume=True)
        settings[key] = str(output / folder)
    if method == ACQUIRE:
        acquire_from_names(output / "english", output / "model", console)
        return
    model = output / "model" if settings else output
    console.print(f"Training {RECIPES[method]} into {model} …")
    if done := run_recipe(RECIPES[method], settings, model, resume=True):
        print_run(*done, console)
    if not settings:
        search(Embedder.from_pretrained(model), "sw", console, load_emoji([_UNSEEN_VENDOR], languages=["en", "sw"]))


def acquire_from_names(base: Path, output: Path, console: "Console") -> None:
    """Teaches a model three languages from CLDR's names, and shows R@10 of its names among the images of an unseen
    vendor: before, after, and by chance."""
    from time import perf_counter

    from ..acquire import Acquisition
    from ..data.emoji.benchmark import load_emoji
    from ..evaluation.ranking import chance_recalls
    from ..evaluation.retrieval import evaluate_retrieval
    from ..inference.embedder import Embedder
    from ..model_cards.cards import ACQUIRED

    tags = ["en", *LANGUAGES]
    names = load_emoji(vendors=_VENDORS[:2], split="train", languages=tags)
    gallery = load_emoji(vendors=[_UNSEEN_VENDOR], split="train", languages=tags)
    rows = [{each["language"]: each["text"] for each in captions} for captions in names["captions"]]
    sources = {tag: [(row[tag], row["en"]) for row in rows if {tag, "en"} <= row.keys()] for tag in LANGUAGES}
    started = perf_counter()
    acquisition = Acquisition(str(base), sources, names=False, license="other")
    acquisition.load()
    acquisition.learn()
    seconds = perf_counter() - started
    is_kept = (output / ACQUIRED).is_file()  # by an earlier demo
    if not is_kept:
        acquisition.save(output, typed_command("babelens"))
    embedders = Embedder.from_pretrained(str(base)), Embedder(acquisition.model, acquisition.processor)
    logging.disable(logging.WARNING)  # the base warns that it cannot read these languages, which the table shows
    try:
        before, after = (evaluate_retrieval(each, gallery, list(LANGUAGES)) for each in embedders)
    finally:
        logging.disable(logging.NOTSET)
    chance = chance_recalls(len(gallery))["t2i_r10"]
    title = f"Text to image R@10, in percent, on {len(gallery):,} images by a vendor that was not in training"
    headings = ("names\nlearned", "R@10\nbefore", "R@10\nafter", "R@10\nby chance")
    table = results_table("language", *headings, title=title)
    for tag, pairs in sources.items():
        table.add_row(tag, *cells([len(pairs), before[tag]["t2i_r10"], after[tag]["t2i_r10"], chance]))
    console.print(f"\n{', '.join(LANGUAGES)} were acquired in {seconds:.0f} seconds from their names in CLDR.")
    console.print(table)
    for tag in LANGUAGES:
        search(embedders[1], tag, console, gallery)
    console.print(f"\n{output} already held a model, which was kept." if is_kept else f"\nThe model: {output}")


def search(embedder: "Embedder", language: str, console: "Console", gallery: "Dataset") -> None:
    """Searches the images of a vendor for a red heart, by its name in CLDR."""
    from rich.text import Text

    from ..data.batching.views import Images

    names = [{each["language"]: each["text"] for each in captions} for captions in gallery["captions"]]
    query = next(row[language] for row, emoji in zip(names, gallery["emoji"], strict=True) if emoji == _HEART)
    images = embedder.encode_image(Images(gallery), show_progress=False)
    scores = images @ embedder.encode_text(query, language=language)[0]
    console.print()
    console.print(Text(query, "bold"), f"({language}):")
    for position in (-scores).argsort(kind="stable")[:_SHOWN].tolist():
        shown = f"  {scores[position]:.3f}  {gallery[position]['emoji']}  {names[position]['en']}"
        console.print(shown, highlight=False)

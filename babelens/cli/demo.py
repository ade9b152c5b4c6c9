"""`babelens demo`: shows the whole workflow from scratch, in a few minutes on two cores."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..utils.redaction import typed_command
from .common import begin_work, plain_console, results_table

if TYPE_CHECKING:
    from datasets import Dataset
    from rich.console import Console

    from ..inference.embedder import Embedder

RECIPE = "emoji/align:demo"  # an English model, which then acquires languages
LANGUAGES = ("mi", "uk", "sw")
_HEART = "❤️"  # whose name in CLDR is searched for
_VENDORS, _UNSEEN_VENDOR = ["twemoji", "openmoji", "fluent"], "noto"
_SHOWN = 5


def demo(
    output: Annotated[Path, typer.Option(help="The folder for the models.")] = Path("runs/demo-acquire"),
) -> None:
    """Train a small English model on emoji, teach it Māori, Ukrainian and Swahili in seconds, and search in them.

    Four vendors drew images of the same 1911 emoji, and Unicode's volunteers named them for CLDR. The model trains on
    three vendors and searches the images of the fourth. The first run fetches names and images from the npm registry
    and renders them, which takes a minute. Repeat the command to resume an interrupted run.

    Small recipes of the published methods: `babelens train emoji/mural:demo`, `emoji/etcl/etcl:demo`,
    `emoji/mla/demo` and `emoji/smalr/demo`.
    """
    begin_work()
    from ..training.run import RecipeRun
    from ..training.schema import load_recipe
    from ..utils.files import ensure_parents
    from ..utils.identity import holds_weights

    console, command, english = plain_console(), typed_command("babelens"), output / "english"
    if not holds_weights(english):
        console.print(f"Training {RECIPE} into {english} …")
        run = RecipeRun(load_recipe(RECIPE), english, command)
        with ensure_parents(english):
            run.write_card(run.train(resume=True), None)
    acquire_from_names(english, output / "model", console, command)


def acquire_from_names(base: Path, output: Path, console: "Console", command: str) -> None:
    """Teaches a model three languages from CLDR's names, and shows R@10 before and after."""
    import shutil
    from time import perf_counter

    from ..acquire import Acquisition
    from ..data.emoji.benchmark import load_emoji
    from ..evaluation.ranking import chance_recalls
    from ..evaluation.retrieval import evaluate_retrieval
    from ..inference.embedder import Embedder

    names = load_emoji(vendors=_VENDORS[:2], split="train", languages=["en", *LANGUAGES])
    gallery = load_emoji(vendors=[_UNSEEN_VENDOR], split="train", languages=["en", *LANGUAGES])
    rows = [{each["language"]: each["text"] for each in captions} for captions in names["captions"]]
    sources = {tag: [(row[tag], row["en"]) for row in rows if {tag, "en"} <= row.keys()] for tag in LANGUAGES}
    started = perf_counter()
    acquisition = Acquisition(str(base), sources, names=False, license="other")
    acquisition.load()
    acquisition.learn()
    seconds = perf_counter() - started
    if (output / "config.json").is_file():
        shutil.rmtree(output)
    acquisition.save(output, command)
    embedders = [Embedder.from_pretrained(str(folder)) for folder in (base, output)]
    logging.disable(logging.WARNING)  # the base warns that it cannot read these languages, which the table shows
    try:
        found = [evaluate_retrieval(each, gallery, list(LANGUAGES)) for each in embedders]
    finally:
        logging.disable(logging.NOTSET)
    asked = {tag: [recalls[tag]["t2i_r10"] for recalls in found] for tag in LANGUAGES}
    chance = chance_recalls([[0]], len(gallery))["t2i_r10"]
    title = f"Text to image R@10, in percent, on {len(gallery):,} images by a vendor that was not in training"
    headings = ("names\nlearned", "R@10\nbefore", "R@10\nafter", "R@10\nby chance")
    table = results_table("language", *headings, title=title)
    for tag, (before, after) in asked.items():
        table.add_row(tag, f"{len(sources[tag]):,}", f"{before:.1f}", f"{after:.1f}", f"{chance:.1f}")
    console.print()
    console.print(f"{', '.join(LANGUAGES)} were acquired in {seconds:.0f} seconds from their names in CLDR.")
    console.print(table)
    for tag in LANGUAGES:
        search(embedders[1], tag, console, gallery)
    console.print(f"\nThe model: {output}")


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

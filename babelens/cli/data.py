"""`babelens data`: what is in the emoji benchmark, or in a corpus of one's own, before anything is trained on it."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import typer
from datasets import Dataset
from rich.console import Console
from rich.table import Table

from ..configuration.files import atomic_file
from ..configuration.languages import normalize_language
from ..data.corpus.corpus import captions_of
from ..data.corpus.images import SkippedImage
from ..data.corpus.loading import load_captions
from ..data.corpus.sampling import evenly_spread
from ..data.emoji.benchmark import VENDORS, emoji_licenses, emoji_manifest, load_emoji, published_manifest
from .console import plain_console
from .embed import SKIP_HELP


def data(
    source: Annotated[
        str | None,
        typer.Argument(
            help="A folder of images with a `metadata.jsonl`, parquet files, or a data set on the Hub. "
            "Without it: the emoji benchmark.",
            show_default=False,
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            help="Of the names on the contact sheet, and of captions that come as plain text: `de`, `zh-Hant`."
        ),
    ] = None,
    split: Annotated[str | None, typer.Option(help="The split to look at, where SOURCE has several.")] = None,
    skip_bad_images: Annotated[bool, typer.Option("--skip-bad-images", help=SKIP_HELP)] = False,
    sheet: Annotated[
        Path | None, typer.Option(help="Draw a contact sheet of images into this file (PNG).", dir_okay=False)
    ] = None,
    images: Annotated[int, typer.Option(help="How many images the contact sheet shows.", min=1)] = 32,
    as_json: Annotated[bool, typer.Option("--json", help="Print the statistics as JSON.")] = False,
) -> None:
    """Show what is in a data set: images, languages, splits, licenses, and images that cannot be read.

    Without SOURCE it is the emoji benchmark: images by four artists, names in 120 languages. The first time, its
    pinned packages are fetched through npm and drawn, which takes about a minute; after that it lies in the cache of
    `datasets`.

    A SOURCE is read as `babelens train` would read it: an image or caption that cannot be used is an error that says
    where it is.
    """
    skipped: list[SkippedImage] = []
    language = normalize_language(language) if language else None
    if source is None:
        corpus = load_emoji(split=split, languages=language or "en")
        statistics = emoji_manifest()
    else:
        on_bad_image: Literal["skip", "error"] = "skip" if skip_bad_images else "error"
        corpus = load_captions(source, language=language, split=split, on_bad_image=on_bad_image, skipped=skipped)
        statistics = {"source": source, **corpus_statistics(corpus), "skipped": [asdict(each) for each in skipped]}
    if as_json:
        typer.echo(json.dumps(statistics, ensure_ascii=False, indent=2))
    elif source is None:
        _show_emoji(plain_console(), statistics)
    else:
        _show_corpus(plain_console(), statistics)
    if sheet:
        rows = _rows_of_all_vendors(corpus, images) if source is None else evenly_spread(len(corpus), images)
        _draw_sheet(corpus.select(rows), language, sheet)
        typer.echo(f"Contact sheet of {len(rows)} images: {sheet}", err=True)


def corpus_statistics(corpus: Dataset) -> dict[str, Any]:
    """Counts of a caption corpus: images, what they show, captions by language with their mean length, splits."""
    captions = pc.list_flatten(captions_of(corpus))
    table = pa.table(
        {
            "language": pc.struct_field(captions, "language"),
            "characters": pc.utf8_length(pc.struct_field(captions, "text")),
        }
    )
    languages = (
        table.group_by("language").aggregate([("characters", "count"), ("characters", "mean")]).sort_by("language")
    )
    return {
        "images": len(corpus),
        "image_ids": len(set(corpus["image_id"])),
        "captions": len(table),
        "languages": {
            row["language"]: {"captions": row["characters_count"], "mean_characters": round(row["characters_mean"], 1)}
            for row in languages.to_pylist()
        },
        "splits": dict(Counter(corpus["split"])) if "split" in corpus.column_names else {},
    }


def _show_corpus(console: Console, statistics: dict[str, Any]) -> None:
    console.print(f"{statistics['source']}:", highlight=False)
    console.print(f"{statistics['images']:,} images of {statistics['image_ids']:,} things", style="bold")
    table = Table("language")
    for column in ("captions", "characters on average"):
        table.add_column(column, justify="right")
    for tag, numbers in statistics["languages"].items():
        table.add_row(tag, f"{numbers['captions']:,}", f"{numbers['mean_characters']:.1f}")
    console.print(table)
    if statistics["splits"]:
        console.print("Splits: " + ", ".join(f"{split} {number:,}" for split, number in statistics["splits"].items()))
    if statistics["skipped"]:
        console.print(f"Images left out: {len(statistics['skipped'])}", style="bold")
        for each in statistics["skipped"]:
            console.print(f"- {each['place']}: {each['reason']}")


def _show_emoji(console: Console, manifest: dict[str, Any]) -> None:
    vendors = Table("images by", title="The emoji benchmark")
    vendors.add_column("images", justify="right")
    vendors.add_column(f"of {manifest['concepts']:,} concepts", justify="right")
    for vendor, number in manifest["images"].items():
        vendors.add_row(vendor, f"{number:,}", f"{number / manifest['concepts']:.1%}")
    console.print(vendors)
    console.print(_splits_table(manifest["splits"]))
    languages = Table("names", "languages", title=f"Names in {len(manifest['languages'])} languages")
    for number in sorted(set(manifest["languages"].values()), reverse=True):
        tags = " ".join(tag for tag, names in manifest["languages"].items() if names == number)
        languages.add_row(f"{number:,}", tags)
    console.print(languages)
    licenses = Table("source", "version", "license", "attribution", title="Name them wherever the benchmark is used")
    for source in emoji_licenses():
        licenses.add_row(
            source["name"], f"{source['package']} {source['version']}", source["license"], source["attribution"]
        )
    console.print(licenses)
    published = "as published" if manifest == published_manifest() else "NOT as published: figures may differ, too"
    console.print(f"Content {manifest['content_sha256']}, {published}")


def _splits_table(splits: dict[str, Any]) -> Table:
    """Concepts by category and split; flags, which are reported apart, come last."""
    table = Table("category", title="Concepts by split; variants of a concept form a group on one side")
    for split in (*splits, "all"):
        table.add_column(split, justify="right")

    def add(name: str, numbers: list[int]) -> None:
        table.add_row(name, *(f"{number:,}" for number in (*numbers, sum(numbers))))

    categories = dict.fromkeys(category for counts in splits.values() for category in counts["categories"])
    for category in sorted(categories, key="Flags".__eq__):
        add(category, [counts["categories"].get(category, 0) for counts in splits.values()])
    table.add_section()
    for total in ("concepts", "groups", "images"):
        add(f"all {total}", [counts[total] for counts in splits.values()])
    return table


def _draw_sheet(corpus: Dataset, language: str | None, path: Path) -> None:
    """A contact sheet of all images, each with a caption below: the first in this language, or else the first."""
    from ..inference.gallery import contact_sheet
    from ..inference.lettering import Lettering

    rows = list(corpus)
    captions = [_caption(row["captions"], language) for row in rows]
    languages = [caption["language"] for caption in captions]
    sheet = contact_sheet(
        [row["image"] for row in rows],
        [caption["text"] for caption in captions],
        languages=languages,
        lettering=None if set(languages) == {"en"} else Lettering.fetch(languages),
    )
    with atomic_file(path) as unfinished:
        sheet.save(unfinished, "PNG")


def _caption(captions: list[dict[str, str]], language: str | None) -> dict[str, str]:
    in_language = [caption for caption in captions if caption["language"] == language]
    return next(iter(in_language or captions), {"language": "en", "text": ""})


def _rows_of_all_vendors(corpus: Dataset, images: int) -> list[int]:
    """Emoji from all over the benchmark, the vendors' images of one side by side."""
    rows_of: dict[str, list[int]] = {}
    for row, image_id in enumerate(corpus["image_id"]):
        rows_of.setdefault(image_id, []).append(row)
    drawn_by_all = [rows for rows in rows_of.values() if len(rows) == len(VENDORS)]
    chosen = evenly_spread(len(drawn_by_all), max(1, images // len(VENDORS)))
    return [row for index in chosen for row in drawn_by_all[index]]

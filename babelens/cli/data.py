"""`babelens data`: what is in the emoji benchmark, or in a corpus of one's own, before a model is trained on it."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..utils.languages import normalize_language
from .console import plain_console, print_json
from .options import (
    PUBLISHED_TOO,
    AsJson,
    CaptionColumn,
    ImageColumn,
    LanguageColumn,
    SourceOptions,
    Split,
    columns_as_options,
    split_tags,
)
from .starting import begin_work

if TYPE_CHECKING:
    from datasets import Dataset
    from rich.console import Console
    from rich.table import Table

_TRANSLATION = "Translation"


def data(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE", help=f"Captioned images: {PUBLISHED_TOO}.", show_default="the emoji benchmark"
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(help="The language of captions that are plain text: `de`, `zh-Hant`."),
    ] = None,
    split: Split = None,
    image_column: ImageColumn = None,
    caption_column: CaptionColumn = None,
    language_column: LanguageColumn = None,
    options: SourceOptions = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Write the images with their captions into this new folder, as a data set that the Hub's viewer "
            "shows: parquet files and a card.",
            file_okay=False,
        ),
    ] = None,
    translate: Annotated[
        str | None,
        typer.Option(
            help="Translate captions for --output: a translation model, a folder or a name on the Hub, or a file of "
            "translations (`.tsv`, `.jsonl`).",
            metavar="TRANSLATOR",
            rich_help_panel=_TRANSLATION,
        ),
    ] = None,
    source_language: Annotated[
        str, typer.Option("--from", help="The language of the captions to translate.", rich_help_panel=_TRANSLATION)
    ] = "en",
    targets: Annotated[
        str | None,
        typer.Option("--to", help="The languages to translate into, such as `zh,ja`.", rich_help_panel=_TRANSLATION),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Leave out the captions that images have in these languages, to compare a model on captions of "
            "people and on translations. Otherwise, images that have some get no translations.",
            rich_help_panel=_TRANSLATION,
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what is in a data set: images, languages, splits, licenses, and images that cannot be read.

    SOURCE is read as `babelens train` reads it: a caption that cannot be used is an error that names its file and row.
    Images that cannot be read are counted and named. A CSV file is a source, too: of `image,text_pl,text_uk`,
    `babelens data products.csv --output products` makes a data set.

    Without SOURCE the command shows the emoji benchmark: images by four vendors, with names in 120 languages. The
    first time, its pinned packages are fetched through npm and drawn, which takes about a minute. After that they
    are in the cache of `datasets`.
    """
    language = normalize_language(language) if language else None
    if translate and not (source and output and targets):
        raise typer.BadParameter("it needs SOURCE, --output and --to", param_hint="--translate")
    options = [*(options or []), *columns_as_options(image_column, caption_column, language_column)]
    if source is None and options:
        raise typer.BadParameter("the emoji benchmark is shown as it is; name a SOURCE", param_hint="--option")
    begin_work()

    if source is None:
        _show_emoji(language, split, output=output, as_json=as_json)
    else:
        from ..data.corpus.images import SkippedImage
        from ..data.corpus.parquet_files import save_captions
        from .inputs import read_source

        skipped: list[SkippedImage] = []
        corpus = read_source(source, options, language=language, split=split, skipped=skipped)
        if translate and targets:
            from ..inference.translated_captions import translated_captions
            from .inputs import load_translator

            translator = load_translator(translate, None, trust_remote_code=False, option="--translate")
            pair: dict[str, Any] = {"source": source_language, "targets": split_tags(targets)}
            corpus = translated_captions(corpus, translator, replace=replace, **pair)
        statistics = {"source": source, **corpus_statistics(corpus), "skipped": [asdict(each) for each in skipped]}
        if as_json:
            print_json(statistics)
        else:
            _print_corpus(plain_console(), statistics)
        if output:
            save_captions(corpus, output)


def _show_emoji(language: str | None, split: str | None, *, output: Path | None, as_json: bool) -> None:
    """Shows what is in the emoji benchmark."""
    from ..data.corpus.parquet_files import save_captions
    from ..data.emoji.benchmark import emoji_manifest, load_emoji

    corpus = load_emoji(split=split, languages=language or "en")
    manifest = emoji_manifest()
    if as_json:
        print_json(manifest)
    else:
        _print_emoji(plain_console(), manifest)
    if output:
        save_captions(corpus, output)


def corpus_statistics(corpus: "Dataset") -> dict[str, Any]:
    """Counts of a caption corpus: images, what they show, captions by language with their mean length, splits."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from ..data.corpus.corpus import captions_of

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


def _print_corpus(console: "Console", statistics: dict[str, Any]) -> None:
    from rich.table import Table

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


def _print_emoji(console: "Console", manifest: dict[str, Any]) -> None:
    from rich.table import Table

    from ..data.emoji.benchmark import emoji_licenses, published_manifest

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


def _splits_table(splits: dict[str, Any]) -> "Table":
    """Concepts by category and split; flags, which are reported apart, come last."""
    from rich.table import Table

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

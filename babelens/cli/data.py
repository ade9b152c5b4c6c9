"""`babelens data`: what is in the emoji benchmark, or in a corpus of one's own, before a model is trained on it."""

from pathlib import Path
from typing import Annotated

import typer

from ..configuration.languages import normalize_language
from .options import PUBLISHED_TOO, AsJson, SkipBadImages, SourceOptions, Split, split_tags

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
        typer.Option(
            help="The language of the captions on the contact sheet, and of captions that are plain text: `de`, "
            "`zh-Hant`."
        ),
    ] = None,
    split: Split = None,
    options: SourceOptions = None,
    skip_bad_images: SkipBadImages = False,
    sheet: Annotated[
        Path | None, typer.Option(help="Draw a contact sheet of images into this PNG file.", dir_okay=False)
    ] = None,
    images: Annotated[int, typer.Option(help="Number of images on the contact sheet.", min=1)] = 32,
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

    SOURCE is read as `babelens train` reads it: an image or a caption that cannot be used is an error that names its
    file and row.

    Without SOURCE the command shows the emoji benchmark: images by four vendors, with names in 120 languages. The
    first time, its pinned packages are fetched through npm and drawn, which takes about a minute. After that they
    are in the cache of `datasets`.
    """
    language = normalize_language(language) if language else None
    if translate and not (source and output and targets):
        raise typer.BadParameter("it needs SOURCE, --output and --to", param_hint="--translate")
    if source is None and options:
        raise typer.BadParameter("the emoji benchmark is shown as it is; name a SOURCE", param_hint="--option")
    from .jobs.data import Translation, show_corpus, show_emoji

    if source is None:
        show_emoji(language, split, sheet=sheet, images=images, output=output, as_json=as_json)
    else:
        translation = None
        if translate and targets:
            translation = Translation(translate, source_language, split_tags(targets), replace=replace)
        show_corpus(
            source,
            language,
            split,
            options=options,
            skip_bad_images=skip_bad_images,
            sheet=sheet,
            images=images,
            output=output,
            translation=translation,
            as_json=as_json,
        )

"""`babelens data`: what is in the emoji benchmark, or in a corpus of one's own, before a model is trained on it."""

from pathlib import Path
from typing import Annotated

import typer

from ..configuration.languages import normalize_language
from .options import CAPTIONED_IMAGES, AsJson, SkipBadImages, Split


def data(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE", help=f"Captioned images: {CAPTIONED_IMAGES}.", show_default="the emoji benchmark"
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
    from .jobs.data import show_corpus, show_emoji

    if source is None:
        show_emoji(language, split, sheet=sheet, images=images, output=output, as_json=as_json)
    else:
        show_corpus(
            source,
            language,
            split,
            skip_bad_images=skip_bad_images,
            sheet=sheet,
            images=images,
            output=output,
            as_json=as_json,
        )

"""`babelens features`: writes captioned images as a corpus of ten-crop features, on which SMALR and LIWE train."""

from pathlib import Path
from typing import Annotated

import typer

from ..utils.errors import InputError
from .common import PUBLISHED_TOO, SourceOptions, TrustRemoteCode, begin_work, check_source, split_tags


def features(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A vision model of transformers, or a dual encoder.")],
    data: Annotated[str, typer.Option(help=f"Images with captions: {PUBLISHED_TOO}.", callback=check_source)],
    output: Annotated[Path, typer.Option(help="A new folder for the parquet files.")],
    split: Annotated[str | None, typer.Option(help="The split to read, or several: `train,validation`.")] = None,
    options: SourceOptions = None,
    crop: Annotated[int, typer.Option(help="Pixels of each side of a crop.", min=1)] = 448,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Write captioned images as a corpus of features, which replace the images.

    The features of an image are averaged over ten crops: the four corners, the centre, and their mirror images. The
    shorter side of an image is resized to 8/7 of a crop.
    `babelens train` and `babelens evaluate` read the folder as data for models of SMALR and LIWE without a backbone.
    """
    if output.exists():
        raise InputError(f"{output} exists already: name a new folder")
    begin_work()

    from ..inference.backbones import TenCropFeatures, write_features
    from .common import read_source

    sizes = {"resize": crop * 8 // 7, "crop": crop}
    extract = TenCropFeatures.from_pretrained(model, trust_remote_code=trust_remote_code, **sizes)
    chosen: list[str | None] = [*split_tags(split)] if split else [None]
    corpora = {split: read_source(data, options, split=split) for split in chosen}
    only = next(iter(corpora.values())) if len(corpora) == 1 else None
    written = {str(split): corpus for split, corpus in corpora.items()} if only is None else only
    write_features(written, extract, output)
    total = sum(map(len, corpora.values()))
    typer.echo(f"{total} images with {extract.width} features each: {output}", err=True)

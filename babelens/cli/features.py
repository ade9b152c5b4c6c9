"""`babelens features`: writes captioned images as a corpus of ten-crop features, on which SMALR and LIWE train."""

from pathlib import Path
from typing import Annotated

import typer

from ..utils.defaults import CROP, RESIZE
from ..utils.errors import InputError
from .common import PUBLISHED_TOO, SourceOptions, TrustRemoteCode, begin_work, split_tags


def features(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A vision model of transformers, or a dual encoder: a folder, or a name such as "
            "`microsoft/resnet-152`.",
        ),
    ],
    data: Annotated[str, typer.Option(help=f"The images with captions: {PUBLISHED_TOO}.")],
    output: Annotated[Path, typer.Option(help="The folder to write parquet files into; it must not exist yet.")],
    split: Annotated[
        str | None,
        typer.Option(
            help="The split to read, or several, such as `train,validation,test`, which become splits of the output."
        ),
    ] = None,
    options: SourceOptions = None,
    language: Annotated[
        str | None, typer.Option(help="The language of captions in plain text, as a BCP-47 tag.")
    ] = None,
    resize: Annotated[int, typer.Option(help="Pixels of an image's shorter side before cropping.", min=1)] = RESIZE,
    crop: Annotated[
        int, typer.Option(help="Pixels of each side of a crop. A vision transformer reads one size only.", min=1)
    ] = CROP,
    batch_size: Annotated[
        int, typer.Option(help="Number of images to encode at a time, each in ten crops.", min=1)
    ] = 4,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Write captioned images as a corpus of features, which replace the images.

    The features of an image are averaged over ten crops: the four corners, the centre, and their mirror images.
    `babelens train` and `babelens evaluate` read the folder as data for models of SMALR and LIWE without a backbone.
    Repeat the command to resume an interrupted run.
    """
    if output.exists():
        raise InputError(f"{output} exists already: name a new folder")
    if crop > resize:
        raise typer.BadParameter(f"{crop} is more than --resize {resize}", param_hint="--crop")
    begin_work()

    from ..inference.backbones import TenCropFeatures, write_features
    from .common import read_source

    extract = TenCropFeatures.from_pretrained(model, trust_remote_code=trust_remote_code, resize=resize, crop=crop)
    chosen: list[str | None] = [*split_tags(split)] if split else [None]
    corpora = {split: read_source(data, options, language=language, split=split) for split in chosen}
    only = next(iter(corpora.values())) if len(corpora) == 1 else None
    written = {str(split): corpus for split, corpus in corpora.items()} if only is None else only
    write_features(written, extract, output, batch_size=batch_size)
    total = sum(map(len, corpora.values()))
    typer.echo(f"{total} images with {extract.width} features each: {output}", err=True)

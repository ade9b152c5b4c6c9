"""`babelens features`: captioned images to a corpus of ten-crop features, which SMALR and LIWE train on."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..configuration.errors import BabelensError
from ..data.corpus.images import SkippedImage
from ..data.corpus.loading import load_captions
from ..inference.ten_crops import CROP, RESIZE, TenCropFeatures, write_features
from .embed import SKIP_HELP
from .options import TrustRemoteCode


def features(
    model: Annotated[
        str,
        typer.Argument(
            help="A vision model of transformers, or a dual encoder, of which the vision tower is taken: a folder, or "
            "a name on the Hub such as `microsoft/resnet-152`."
        ),
    ],
    data: Annotated[
        str,
        typer.Option(help="Captioned images: a folder with a `metadata.jsonl`, parquet files, or a Hub data set."),
    ],
    output: Annotated[Path, typer.Option(help="The folder to write, of parquet files; it must not be there yet.")],
    split: Annotated[str | None, typer.Option(help="The split of DATA to use, where it has several.")] = None,
    language: Annotated[
        str | None, typer.Option(help="The language of captions that come as plain text, as a BCP-47 tag.")
    ] = None,
    resize: Annotated[
        int, typer.Option(help="Pixels of an image's shorter side before it is cropped.", min=1)
    ] = RESIZE,
    crop: Annotated[
        int, typer.Option(help="Pixels of a crop's sides. A vision transformer takes one size alone.", min=1)
    ] = CROP,
    skip_bad_images: Annotated[bool, typer.Option("--skip-bad-images", help=SKIP_HELP)] = False,
    batch_size: Annotated[int, typer.Option(help="Images encoded at a time, each in ten crops.", min=1)] = 4,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Write captioned images as a corpus with features in the place of the images.

    An image's features are a frozen vision model's, the mean over ten crops: the corners, the centre, and their
    mirror images. The folder is data for `babelens train` and `babelens evaluate`, with SMALR or LIWE that have no
    backbone: they never see a pixel. Both must be given features of the same model and sizes.

    A run that was broken off goes on where it was when it is started again.
    """
    if output.exists():  # said before every image is opened
        raise typer.BadParameter(f"{output} is there already", param_hint="--output")
    if crop > resize:
        raise typer.BadParameter(f"{crop} is more than --resize {resize}", param_hint="--crop")
    try:
        extract = TenCropFeatures.from_pretrained(model, resize=resize, crop=crop, trust_remote_code=trust_remote_code)
    except (BabelensError, OSError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="MODEL") from error
    skipped: list[SkippedImage] = []
    on_bad_image: Literal["skip", "error"] = "skip" if skip_bad_images else "error"
    corpus = load_captions(data, split=split, language=language, on_bad_image=on_bad_image, skipped=skipped)
    for each in skipped:
        typer.echo(f"left out: {each.place}: {each.reason}", err=True)
    write_features(corpus, extract, output, batch_size=batch_size)
    typer.echo(f"{len(corpus)} images, {extract.width} numbers each: {output}", err=True)

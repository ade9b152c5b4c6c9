"""`babelens features`: writes captioned images as a corpus of ten-crop features, on which SMALR and LIWE train."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..utils.errors import InputError
from .common import PUBLISHED_TOO, SourceOptions, TrustRemoteCode, begin_work, check_source, split_tags

if TYPE_CHECKING:
    from datasets import Dataset

    from ..inference.backbones import TenCropFeatures

_ROWS_PER_FILE, _IMAGES_AT_ONCE = 1000, 4


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

    from ..inference.backbones import TenCropFeatures
    from .common import read_source

    extract = TenCropFeatures.from_pretrained(model, crop=crop, trust_remote_code=trust_remote_code)
    names: list[str | None] = [*split_tags(split)] if split else [None]
    corpora = {f"data/{name}" if names[1:] else "features": read_source(data, options, split=name) for name in names}
    write_features(corpora, extract, output)
    total = sum(map(len, corpora.values()))
    typer.echo(f"{total} images with {extract.width} features each: {output}", err=True)


def write_features(corpora: "Mapping[str, Dataset]", extract: "TenCropFeatures", output: Path) -> None:
    """Writes caption corpora, by the beginnings of their files' names, with `features` instead of images, as a new
    folder of parquet files that `load_captions` reads. The folder appears when all files are written."""
    from datasets.utils.logging import tqdm

    from ..data.batching.views import Images
    from ..data.corpus.corpus import FEATURES
    from ..utils.files import new_folder

    with new_folder(output) as folder:
        for name, corpus in corpora.items():
            count = -(-len(corpus) // _ROWS_PER_FILE)
            (folder / name).parent.mkdir(exist_ok=True)
            for number in tqdm(range(count), desc="Features of images", unit=" files", disable=None):
                rows = corpus.select(range(len(corpus))[number * _ROWS_PER_FILE :][:_ROWS_PER_FILE])
                images, starts = Images(rows), range(0, len(rows), _IMAGES_AT_ONCE)
                features = [each for start in starts for each in extract(images[start : start + _IMAGES_AT_ONCE])]
                found = rows.remove_columns("image").add_column("features", features, feature=FEATURES)
                found.to_parquet(folder / f"{name}-{number:05}-of-{count:05}.parquet")

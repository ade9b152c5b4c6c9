"""A corpus of ten-crop features, for `babelens features`."""

from pathlib import Path

import typer

from ...configuration.errors import BabelensError
from ...data.corpus.images import SkippedImage
from ...data.corpus.loading import load_captions
from ...inference.ten_crops import TenCropFeatures, write_features


def extract_features(
    model: str,
    data: str,
    output: Path,
    *,
    split: str | None,
    language: str | None,
    sizes: dict[str, int],
    skip_bad_images: bool,
    batch_size: int,
    trust_remote_code: bool,
) -> None:
    """Writes the corpus `data` with the features of a vision model; `sizes` are `resize` and `crop`."""
    try:
        extract = TenCropFeatures.from_pretrained(model, trust_remote_code=trust_remote_code, **sizes)
    except (BabelensError, OSError) as error:
        raise typer.BadParameter(str(error), param_hint="MODEL") from error
    skipped: list[SkippedImage] = []
    corpus = load_captions(
        data,
        split=split,
        language=language,
        on_bad_image="skip" if skip_bad_images else "error",
        skipped=skipped,
    )
    for each in skipped:
        typer.echo(f"left out: {each.place}: {each.reason}", err=True)
    write_features(corpus, extract, output, batch_size=batch_size)
    typer.echo(f"{len(corpus)} images with {extract.width} features each: {output}", err=True)

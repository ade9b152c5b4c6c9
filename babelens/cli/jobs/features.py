"""A corpus of ten-crop features, for `babelens features`."""

from pathlib import Path

import typer

from ...configuration.errors import BabelensError
from ...inference.ten_crops import TenCropFeatures, write_features
from .sources import read_captions


def extract_features(
    model: str,
    data: str,
    output: Path,
    *,
    splits: list[str],
    options: list[str] | None,
    language: str | None,
    sizes: dict[str, int],
    skip_bad_images: bool,
    batch_size: int,
    trust_remote_code: bool,
) -> None:
    """Writes the corpus `data` with the features of a vision model.

    Args:
        model, data, output, language, skip_bad_images, batch_size, trust_remote_code: as the command's options.
        splits: the splits to read; of several, each becomes one of the output.
        sizes: `resize` and `crop`.
    """
    try:
        extract = TenCropFeatures.from_pretrained(model, trust_remote_code=trust_remote_code, **sizes)
    except (BabelensError, OSError) as error:
        raise typer.BadParameter(str(error), param_hint="MODEL") from error
    skipped = []
    chosen: list[str | None] = [*splits] or [None]
    corpora = {}
    for split in chosen:
        corpora[split], left_out = read_captions(
            data, options, language=language, split=split, skip_bad_images=skip_bad_images
        )
        skipped += left_out
    for each in skipped:
        typer.echo(f"left out: {each.place}: {each.reason}", err=True)
    only = next(iter(corpora.values())) if len(corpora) == 1 else None
    written = {str(split): corpus for split, corpus in corpora.items()} if only is None else only
    write_features(written, extract, output, batch_size=batch_size)
    total = sum(map(len, corpora.values()))
    typer.echo(f"{total} images with {extract.width} features each: {output}", err=True)

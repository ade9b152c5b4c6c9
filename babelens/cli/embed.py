"""`babelens embed`: images or texts to a file of vectors, for other programs to use."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from ..configuration.errors import CorpusError
from ..configuration.files import atomic_file
from ..configuration.languages import normalize_language
from ..data.corpus.images import refuse_mostly_bad
from ..data.corpus.text_files import read_texts
from ..inference.cross_encoder import CrossEncoder
from ..inference.embedder import Embedder
from ..inference.image_index import ImageIndex, images_in
from ..inference.region_extraction import RegionExtractor
from .options import TrustRemoteCode

_FORMATS = (".npy", ".parquet")
SKIP_HELP = "Leave out images that cannot be read, and list them. When most of them are bad, it is an error."


def embed(
    model: Annotated[str, typer.Argument(help="A model's folder, or its name on the Hub.")],
    output: Annotated[
        Path,
        typer.Option(
            help="The file to write: `.parquet` (the columns `file`, or `text` and `language`, and `embedding`), or "
            "`.npy` (the vectors alone, one in a row: images in the order of their paths, texts as they stand).",
            dir_okay=False,
        ),
    ],
    images: Annotated[
        Path | None,
        typer.Option(help="A folder of images, with all folders in it.", exists=True, file_okay=False),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(help="A text file in UTF-8, one text in a line, no line empty.", exists=True, dir_okay=False),
    ] = None,
    language: Annotated[str | None, typer.Option(help="The language of the texts, as a BCP-47 tag.")] = None,
    skip_bad_images: Annotated[bool, typer.Option("--skip-bad-images", help=SKIP_HELP)] = False,
    batch_size: Annotated[int, typer.Option(help="Images or texts encoded at a time.", min=1)] = 64,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Write the vectors of images or of texts: float32, of length 1, so that a dot product is a cosine.

    Vectors of one model can be compared whatever they came from: a text in any language with an image or with a text
    in another language. `Dataset.from_parquet(FILE).add_faiss_index("embedding")` makes a search index of millions.
    """
    if (images is None) == (texts is None):
        raise typer.BadParameter("give either --images or --texts")
    if (texts is None) != (language is None):
        raise typer.BadParameter("--texts and --language go together: no language is guessed", param_hint="--language")
    if output.suffix not in _FORMATS:
        raise typer.BadParameter(f"{output.name}: the name must end in {' or '.join(_FORMATS)}", param_hint="--output")
    if images and output.suffix == ".parquet":
        _check_names(images)
    embedder = load_embedder(model, batch_size=batch_size, trust_remote_code=trust_remote_code)
    if images:
        index = ImageIndex.of_folder(embedder, images, skip_bad_images=skip_bad_images)
        refuse_mostly_bad([*index.skipped.values()], len(index.skipped) + len(index.paths))
        columns = {"file": [path.relative_to(images).as_posix() for path in index.paths]}
        embeddings = index.embeddings
        for reason in index.skipped.values():
            typer.echo(f"left out: {reason}", err=True)
    elif texts and language:
        lines = read_texts(texts)
        if not lines:
            raise CorpusError(f"{texts} holds no text")
        columns = {"text": lines, "language": [normalize_language(language)] * len(lines)}
        embeddings = embedder.encode_text(lines, language=language)
    _write(output, columns, embeddings)
    typer.echo(f"{len(embeddings)} vectors of {embeddings.shape[1]} numbers: {output}", err=True)


REGIONS_HELP = (
    "For a cross-encoder that reads regions: the object detector that finds them, its folder or its name on the Hub; "
    "with --grid an image encoder, also that of a dual encoder."
)
GRID_HELP = "Regions are the cells of a raster over what an image encoder sees, so many on each side."


def load_embedder(model: str, **options: Any) -> Embedder:
    """The embedder of a command's MODEL; the loading error becomes one of that argument."""
    try:
        return Embedder.from_pretrained(model, **options)
    except (OSError, TypeError) as error:
        raise typer.BadParameter(str(error), param_hint="MODEL") from error


def load_cross_encoder(
    model: str | None, regions: str | None, grid: int | None, *, trust_remote_code: bool, **options: Any
) -> CrossEncoder | None:
    """The cross-encoder of the option --rerank, with the finder of regions of --regions; as `load_embedder`."""
    if regions and not model:
        raise typer.BadParameter("there is no cross-encoder to read them: give --rerank", param_hint="--regions")
    if grid and not regions:
        raise typer.BadParameter("there is no image encoder to cut the view of: give --regions", param_hint="--grid")
    if not model:
        return None
    code = {"trust_remote_code": trust_remote_code}
    try:
        judge = CrossEncoder.from_pretrained(model, **options, **code)
    except (OSError, TypeError) as error:
        raise typer.BadParameter(str(error), param_hint="--rerank") from error
    if regions:
        most = judge.processor.max_regions
        try:
            finder = RegionExtractor.from_pretrained(regions, grid=grid, max_regions=most, **code)
        except (OSError, ValueError) as error:
            raise typer.BadParameter(str(error), param_hint="--regions") from error
        finder.model.to(judge.model.device)
        judge.find_regions = finder
    return judge


def _check_names(folder: Path) -> None:
    """Before anything is encoded: a column of text takes no name that is not UTF-8."""
    for path in images_in(folder):
        try:
            str(path.relative_to(folder)).encode()
        except UnicodeEncodeError:
            raise CorpusError(f"{path}: its name is not UTF-8, as in a .parquet file it must be; rename it") from None


def _write(output: Path, columns: dict[str, list[str]], embeddings: np.ndarray) -> None:
    embeddings = np.ascontiguousarray(embeddings)
    with atomic_file(output) as path:
        if output.suffix == ".npy":
            with path.open("wb") as file:  # numpy's own writing does not say that the disk is full
                np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(embeddings))
                file.write(embeddings.data)
        else:
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(embeddings.reshape(-1)), embeddings.shape[1])
            pq.write_table(pa.table({**columns, "embedding": vectors}), path)

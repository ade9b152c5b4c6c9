"""`babelens embed`: writes embeddings of images or texts to a file or a folder of shards, for other programs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..utils.errors import CorpusError
from ..utils.files import atomic_file
from ..utils.languages import normalize_language
from .common import BatchSize, Model, TrustRemoteCode, begin_work, split_tags

if TYPE_CHECKING:
    from ..inference.embedder import Embedder

_FORMATS = (".npy", ".parquet")


def embed(
    model: Model,
    output: Annotated[
        Path, typer.Option(help="A `.parquet` or `.npy` file; without an extension, a folder of parquet shards.")
    ],
    images: Annotated[
        str | None,
        typer.Option(
            help="A folder of images; for shards also tar files (`{000..099}.tar`), parquet files, or a `.jsonl` file."
        ),
    ] = None,
    texts: Annotated[
        str | None,
        typer.Option(help="A file with one text per line; for shards also parquet files, or a `.jsonl` file."),
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="The language of texts that state none, as a BCP-47 tag.")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Metadata to keep in shards, such as `url,width:int`.")] = None,
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"], typer.Option(help="The number format of the computation.")
    ] = "float32",
    ray: Annotated[
        str | None, typer.Option(help="Write shards by Ray: `local`, `auto`, or the address of a cluster.")
    ] = None,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Write the embeddings of images or of texts: vectors of length 1, whose dot product is their cosine.

    `babelens embed runs/mural --images photos --output photos.parquet`

    `babelens index` makes a search index from the embeddings of images. Repeat the command to complete a folder of
    shards.
    """
    if (images is None) == (texts is None):
        raise typer.BadParameter("give either --images or --texts")
    if language and texts is None:
        raise typer.BadParameter("images have no language", param_hint="--language")
    language = None if language is None else normalize_language(language)
    is_file = bool(output.suffix)
    if is_file and output.suffix not in _FORMATS:
        raise typer.BadParameter(
            f"{output.name} must end in .npy or .parquet, or have no extension", param_hint="--output"
        )
    if is_file and (columns or ray):
        raise typer.BadParameter("only for a folder of shards", param_hint="--columns" if columns else "--ray")
    if is_file and images and not Path(images).is_dir():
        raise typer.BadParameter(f"there is no folder {images}", param_hint="--images")
    if is_file and texts and (not Path(texts).exists() or Path(texts).is_dir()):  # a pipe is allowed
        raise CorpusError(f"No file {texts} here")
    begin_work()
    from ..inference.embed import EmbeddingJob, embed_on_ray, embed_source, parse_columns
    from ..inference.embedder import Embedder

    loading: dict[str, Any] = {"batch_size": batch_size, "draft_jpegs": True, "trust_remote_code": trust_remote_code}
    if is_file:
        embedder = Embedder.from_pretrained(model, **loading)
        _write_file(embedder, images, texts, language, output, precision)
        return
    job = EmbeddingJob(
        source=images or texts or "",
        output=output,
        what="images" if images else "texts",
        columns=parse_columns(split_tags(columns or "")),
        precision=precision,
        language=language,
    )
    if ray:
        counts = embed_on_ray(model, job, address=None if ray == "local" else ray, **loading)
    else:
        counts = embed_source(Embedder.from_pretrained(model, **loading), job, model=model)
    left_out = "".join(f"; left out: {number:,} with {kind}" for kind, number in sorted(counts.skipped.items()))
    typer.echo(f"{counts.embedded:,} of {counts.read:,} {job.what} embedded{left_out}: {output}", err=True)
    for column, number in sorted(counts.missing.items()):
        typer.echo(f"{number:,} of them have no {column}", err=True)


def _write_file(
    embedder: "Embedder", images: str | None, texts: str | None, language: str | None, output: Path, precision: str
) -> None:
    """Writes the embeddings of a folder of images, or of the lines of a text file, into one file."""
    import numpy as np
    import pyarrow.parquet as pq

    from ..data.corpus.text_files import read_texts
    from ..inference.embedding_shards import EMBEDDING, shard_table
    from ..inference.image_index import ImageIndex
    from ..modeling.encoding import autocasting
    from ..processing.text_inputs import default_language

    with autocasting(embedder.model.device, precision):
        if images:
            index = ImageIndex.of_folder(embedder, Path(images), utf8_names=output.suffix == ".parquet")
            names, languages = [path.relative_to(images).as_posix() for path in index.paths], None
            embeddings = index.embeddings
        else:
            names = read_texts(Path(texts or ""))
            if not names:
                raise CorpusError(f"{texts} holds no text")
            languages = [language or default_language(embedder.processor)] * len(names)
            embeddings = embedder.encode_text(names, language=languages)
    with atomic_file(output) as path:
        if output.suffix == ".npy":
            with path.open("wb") as file:  # np.save with a path does not report a full disk
                np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(embeddings))
                file.write(np.ascontiguousarray(embeddings).data)
        else:
            table = shard_table(names, embeddings)
            columns = {"file": table["id"]} if languages is None else {"text": table["id"], "language": languages}
            pq.write_table(type(table).from_pydict({**columns, EMBEDDING: table[EMBEDDING]}), path)
    typer.echo(f"{len(embeddings)} embeddings of {embeddings.shape[1]} dimensions: {output}", err=True)

"""`babelens index`: indexes of embeddings that are kept, searched and filtered."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..utils.languages import normalize_language
from .console import plain_console, print_json
from .options import (
    AsJson,
    BatchSize,
    Index,
    TruncateDim,
    TrustRemoteCode,
    Where,
)
from .starting import begin_work

if TYPE_CHECKING:
    from ..search.sources import VectorSource

index = typer.Typer(
    help="Build and search an index of the embeddings of images, for millions of them.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Embeddings = Annotated[
    Path | None,
    typer.Argument(
        metavar="EMBEDDINGS",
        help="Embeddings of images that `babelens embed` wrote: a folder of shards, or a .parquet file, whose model "
        "--model names.",
        exists=True,
    ),
]
Images = Annotated[
    Path | None,
    typer.Option(
        help="Instead of EMBEDDINGS, a folder of images, encoded by --model; with its subfolders.",
        exists=True,
        file_okay=False,
    ),
]
SourceModel = Annotated[
    str | None,
    typer.Option(
        "--model", help="The model that encodes the images, or that computed a .parquet file: a folder, or a name."
    ),
]


@index.command()
def build(
    output: Annotated[
        str,
        typer.Option(help="The folder of the index, which must be new or empty; or an address."),
    ],
    embeddings: Embeddings = None,
    images: Images = None,
    model: SourceModel = None,
    approximate: Annotated[
        bool,
        typer.Option("--approximate", help="Search the nearest of many cells (IVF-PQ) instead of all vectors."),
    ] = False,
    truncate_dim: TruncateDim = None,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Build an index of embeddings.

    `babelens index build photos-embedded --output photos.index --approximate`
    """
    _check_source(embeddings, images, model)
    begin_work()
    from ..search.lance import build_index, check_free

    check_free(output)  # before images are encoded for it
    source = _source(
        embeddings,
        images,
        model,
        truncate_dim=truncate_dim,
        batch_size=batch_size,
        draft_jpegs=True,
        trust_remote_code=trust_remote_code,
    )
    built = build_index(output, source, approximate=approximate)
    if as_json:
        print_json({"index": output, "vectors": len(built), "approximate": built.is_approximate} | asdict(built.info))
    else:
        typer.echo(f"{len(built):,} vectors of {built.info.model}: {output}")


@index.command()
def search(
    index: Index,
    model: Annotated[
        str, typer.Option(help="The model that computed the index: a folder, or a name on the Hugging Face Hub.")
    ],
    text: Annotated[
        str | None, typer.Argument(metavar="[QUERY]", help="A description of what to find, such as `ein rotes Auto`.")
    ] = None,
    query: Annotated[
        list[str] | None,
        typer.Option(help="A further description, such as a translation of QUERY; may be repeated."),
    ] = None,
    language: Annotated[
        list[str] | None,
        typer.Option(
            help="The language of all descriptions, or of each in their order, as a BCP-47 tag. It may be left out as "
            "in `babelens search`."
        ),
    ] = None,
    image: Annotated[
        list[Path] | None,
        typer.Option(help="An image to find similar ones of; may be repeated.", exists=True, dir_okay=False),
    ] = None,
    merge: Annotated[
        Literal["mean", "max"],
        typer.Option(help="With several descriptions and images: the mean of the cosines with them, or the highest."),
    ] = "mean",
    top: Annotated[int, typer.Option(help="Number of results to show.", min=1)] = 10,
    where: Where = None,
    exact: Annotated[bool, typer.Option("--exact", help="Scan all vectors of an approximate index.")] = False,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Search an index by texts in one or several languages, and by images.

    `babelens index search photos.index "ein rotes Auto" --language de --model runs/mural --where "width > 500"`
    """
    texts = [*([text] if text is not None else []), *(query or [])]
    languages = [normalize_language(tag) for tag in language or []]
    if not texts and not image:
        raise typer.BadParameter("give a description or --image", param_hint="QUERY")
    if any(not each.strip() for each in texts):
        raise typer.BadParameter("a description is empty: every image would fit it as well", param_hint="QUERY")
    if texts and languages and len(languages) not in (1, len(texts)):
        raise typer.BadParameter(
            f"{len(languages)} languages for {len(texts)} descriptions: give one for all, or one for each",
            param_hint="--language",
        )
    if languages and not texts:
        raise typer.BadParameter("there is no description whose language it could be", param_hint="--language")
    begin_work()
    from rich.table import Table

    from ..inference.texts import languages_of, warn_of_language
    from ..processing.text_inputs import default_language
    from ..search.lance import open_index, search_index
    from .inputs import load_embedder

    opened, images = open_index(index), image or []
    embedder = load_embedder(model, hint="--model", draft_jpegs=True, trust_remote_code=trust_remote_code)
    stated = languages_of(embedder.processor, model)
    for tag in dict.fromkeys(languages):
        warn_of_language(tag, *stated, model)
    if len(languages) < 2:
        languages = (languages or [default_language(embedder.processor)]) * len(texts)
    hits = search_index(
        opened,
        embedder,
        texts,
        language=languages,
        images=images,
        merge=merge,
        top=top,
        where=where,
        exact=exact,
    )
    if as_json:
        facts = {
            "queries": [{"text": text, "language": tag} for text, tag in zip(texts, languages, strict=True)],
            "images": [str(path) for path in images],
            "results": [asdict(hit) for hit in hits],
        }
        print_json(facts)
        return
    described = [f"{text} [{tag}]" for text, tag in zip(texts, languages, strict=True)]
    title = " + ".join([*described, *(str(path) for path in images)])
    table = Table(title=title, caption=f"{len(opened)} vectors in {index}")
    table.add_column("score", justify="right")
    table.add_column("id", overflow="fold")
    columns = [name for name in opened.schema.names if name != "id"]
    for name in columns:
        table.add_column(name, overflow="fold")
    for hit in hits:
        table.add_row(f"{hit.score:.3f}", hit.id, *(str(hit.metadata[name]) for name in columns))
    plain_console().print(table)


def _check_source(embeddings: Path | None, images: Path | None, model: str | None) -> None:
    if (embeddings is None) == (images is None):
        raise typer.BadParameter("give either EMBEDDINGS or --images", param_hint="EMBEDDINGS")
    if images is not None and model is None:
        raise typer.BadParameter("the images of --images are encoded by a model: name it", param_hint="--model")
    if embeddings is not None and embeddings.is_dir() and model is not None:
        raise typer.BadParameter("a folder of shards states its model itself", param_hint="--model")
    if embeddings is not None and embeddings.is_file() and model is None:
        raise typer.BadParameter("a .parquet file does not state its model: name it", param_hint="--model")


def _source(embeddings: Path | None, images: Path | None, model: str | None, **loading: Any) -> "VectorSource":
    """The embeddings that a command was given, or those of the images of a folder."""
    from ..inference.embedding_shards import EmbeddingsInfo
    from ..search.sources import embeddings_source, images_source
    from ..utils.identity import index_identity
    from .inputs import load_embedder

    embedder = load_embedder(model, hint="--model", **loading) if model else None
    if images and model and embedder:
        return images_source(embedder, model, images)
    assert embeddings is not None
    info = EmbeddingsInfo(model, index_identity(embedder.model, embedder.processor), 0) if model and embedder else None
    return embeddings_source(embeddings, info)

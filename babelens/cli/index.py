"""`babelens index`: indexes of embeddings that are kept, searched, filtered and changed."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..configuration.languages import normalize_language
from .console import plain_console, print_json
from .options import (
    INDEX_SETTINGS,
    AsJson,
    BatchSize,
    EfSearch,
    Index,
    Nprobe,
    Refine,
    TruncateDim,
    TrustRemoteCode,
    Where,
)
from .starting import begin_work

if TYPE_CHECKING:
    from ..search.lance_table import IndexStat
    from ..search.sources import VectorSource

index = typer.Typer(
    help="Build, search and change an index of the embeddings of images, for millions of them.",
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
Samples = Annotated[int, typer.Option(help="Number of vectors that recall is measured on.", min=1)]


@index.command()
def build(
    output: Annotated[
        str,
        typer.Option(help="The folder of the index, which must be new or empty; or an address."),
    ],
    embeddings: Embeddings = None,
    images: Images = None,
    model: SourceModel = None,
    engine: Annotated[
        Literal["exact", "hnsw", "ivf-pq"],
        typer.Option(help="`exact` scans all vectors; `ivf-pq` and `hnsw` search the nearest of many cells."),
    ] = "exact",
    samples: Samples = 100,
    truncate_dim: TruncateDim = None,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Build an index of embeddings.

    `babelens index build photos-embedded --output photos.index --engine ivf-pq`

    Of an approximate engine, recall@10 is measured and printed: the share of the 10 nearest vectors of the exact scan
    that it finds, for vectors of the index as queries.
    """
    _check_source(embeddings, images, model)
    begin_work()
    from ..search.lance_table import check_has_no_index, library
    from ..search.queries import measured_recall
    from ..search.vector_index import build_index

    check_has_no_index(Path(output))  # before images are encoded for it
    library()
    source = _source(
        embeddings,
        images,
        model,
        truncate_dim=truncate_dim,
        batch_size=batch_size,
        draft_jpegs=True,
        trust_remote_code=trust_remote_code,
    )
    began = time.perf_counter()
    built = build_index(output, source, engine)
    facts: dict[str, Any] = {"seconds": round(time.perf_counter() - began, 1)}
    if built.engine != "exact":
        facts |= {"recall@10": measured_recall(built, samples=samples), "samples": samples}
    _show(output, built.stat(), facts, as_json)


@index.command()
def add(
    index: Index,
    embeddings: Embeddings = None,
    images: Images = None,
    model: SourceModel = None,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Add embeddings of the same model, with the same columns of metadata, to an index.

    `babelens index add photos.index more-embedded`
    """
    _check_source(embeddings, images, model)
    begin_work()
    from ..search.vector_index import open_index

    opened = open_index(index)  # so that it is known to be there before images are encoded for it
    source = _source(
        embeddings,
        images,
        model,
        truncate_dim=opened.info.dimension,
        batch_size=batch_size,
        draft_jpegs=True,
        trust_remote_code=trust_remote_code,
    )
    added = opened.add(source)
    typer.echo(f"{added} vectors added to {index}, which has {opened.stat().vectors}")


@index.command()
def delete(
    index: Index,
    ids: Annotated[list[str] | None, typer.Option("--id", help="The id of a vector; may be repeated.")] = None,
    ids_file: Annotated[
        Path | None,
        typer.Option("--ids", help="A text file in UTF-8 with one id per line.", exists=True, dir_okay=False),
    ] = None,
    where: Where = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="Write the index anew afterwards, so that deleted vectors take no space.")
    ] = False,
) -> None:
    """Delete vectors from an index, by their ids or by a filter.

    `babelens index delete photos.index --where "license = 'unknown'" --compact`
    """
    if not ids and ids_file is None and where is None and not compact:
        raise typer.BadParameter("say what to delete: --id, --ids or --where", param_hint="--id")
    begin_work()
    from ..data.corpus.text_files import read_texts
    from ..search.vector_index import open_index

    opened = open_index(index)
    chosen = [*(ids or []), *(read_texts(ids_file) if ids_file else [])]
    deleted = opened.delete(chosen, where=where) if chosen or where is not None else 0
    if compact:
        opened.compact()
    typer.echo(f"{deleted} vectors deleted from {index}, which has {opened.stat().vectors}")


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
    ef_search: EfSearch = None,
    nprobe: Nprobe = None,
    refine: Refine = None,
    exact: Annotated[bool, typer.Option("--exact", help="Scan all vectors.", rich_help_panel=INDEX_SETTINGS)] = False,
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
    from ..search.lance_table import SearchSettings
    from ..search.queries import search_index
    from ..search.vector_index import open_index
    from .inputs import load_embedder

    opened, images = open_index(index), image or []
    embedder = load_embedder(model, hint="--model", draft_jpegs=True, trust_remote_code=trust_remote_code)
    stated = languages_of(embedder.processor, model)
    for tag in dict.fromkeys(languages):
        warn_of_language(tag, *stated, model)
    if len(languages) < 2:
        languages = (languages or [default_language(embedder.processor)]) * len(texts)
    settings = SearchSettings(ef_search, nprobe, refine, exact)
    hits = search_index(
        opened,
        embedder,
        texts,
        language=languages,
        images=images,
        merge=merge,
        top=top,
        where=where,
        settings=settings,
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
    table = Table(title=title, caption=f"{opened.stat().vectors} vectors in {index}")
    table.add_column("score", justify="right")
    table.add_column("id", overflow="fold")
    columns = list(opened.stat().columns)
    for name in columns:
        table.add_column(name, overflow="fold")
    for hit in hits:
        table.add_row(f"{hit.score:.3f}", hit.id, *(str(hit.metadata[name]) for name in columns))
    plain_console().print(table)


@index.command()
def stat(
    index: Index,
    recall: Annotated[
        bool, typer.Option("--recall", help="Measure recall@10 beside the exact scan, on vectors of the index.")
    ] = False,
    samples: Samples = 100,
    ef_search: EfSearch = None,
    nprobe: Nprobe = None,
    refine: Refine = None,
    as_json: AsJson = False,
) -> None:
    """Show what an index holds: engine, model, vectors, bytes, columns of metadata.

    `babelens index stat photos.index --recall --nprobe 256`
    """
    if not recall and (ef_search or nprobe or refine):
        raise typer.BadParameter("settings of a search need --recall, which searches", param_hint="--recall")
    begin_work()
    from ..search.lance_table import SearchSettings
    from ..search.queries import measured_recall
    from ..search.vector_index import open_index

    opened = open_index(index)
    facts: dict[str, Any] = {}
    if recall:
        settings = SearchSettings(ef_search, nprobe, refine)
        facts = {"recall@10": measured_recall(opened, settings, samples=samples), "samples": samples}
        facts |= settings.given()
    _show(index, opened.stat(), facts, as_json)


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
    from ..configuration.identity import index_identity
    from ..inference.embedding_shards import EmbeddingsInfo
    from ..search.sources import embeddings_source, images_source
    from .inputs import load_embedder

    embedder = load_embedder(model, hint="--model", **loading) if model else None
    if images and model and embedder:
        return images_source(embedder, model, images)
    assert embeddings is not None
    info = EmbeddingsInfo(model, index_identity(embedder.model, embedder.processor), 0) if model and embedder else None
    return embeddings_source(embeddings, info)


def _show(address: str, stat: "IndexStat", facts: dict[str, Any], as_json: bool) -> None:
    from rich.table import Table

    if as_json:
        print_json({"index": address} | asdict(stat) | facts)
        return
    columns = ", ".join(f"{name} ({kind})" for name, kind in stat.columns.items()) or "none"
    rows = asdict(stat) | {"bytes": f"{stat.bytes:,}", "columns": columns} | facts
    if "recall@10" in facts:
        rows["recall@10"] = f"{facts['recall@10']:.3f} of the exact scan's results"
    table = Table(title=address, show_header=False)
    for name, value in rows.items():
        table.add_row(name, str(value))
    plain_console().print(table)

"""Indexes of embeddings, for `babelens index`."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from ...data.corpus.text_files import read_texts
from ...inference.embedding_shards import EmbeddingsInfo
from ...inference.fingerprint import image_fingerprint
from ...inference.stated_languages import languages_of, warn_of_language
from ...processing.text_inputs import default_language
from ...search.queries import Merge, search_index
from ...search.recall import measured_recall
from ...search.settings import EngineName, IndexParameters, IndexStat, SearchSettings
from ...search.sources import VectorSource, embeddings_source, images_source
from ...search.vector_index import build_index, open_index
from ..console import plain_console
from .models import load_embedder


def make_source(
    embeddings: Path | None, images: Path | None, model: str | None, skip_bad_images: bool, **loading: Any
) -> VectorSource:
    """The embeddings that a command was given, or those of the images of a folder."""
    embedder = load_embedder(model, hint="--model", **loading) if model else None
    if images and model and embedder:
        return images_source(embedder, model, images, skip_bad_images=skip_bad_images)
    assert embeddings is not None
    info = (
        EmbeddingsInfo(model, image_fingerprint(embedder.model, embedder.processor), 0) if model and embedder else None
    )
    return embeddings_source(embeddings, info)


def build_from(
    source: VectorSource,
    output: str,
    engine: EngineName,
    parameters: IndexParameters,
    samples: int,
    as_json: bool,
) -> None:
    """Builds an index and shows what it holds, and how much of the exact scan an approximate engine finds."""
    began = time.perf_counter()
    index = build_index(output, source, engine, parameters)
    facts: dict[str, Any] = {"seconds": round(time.perf_counter() - began, 1)}
    if index.engine != "exact":
        facts |= {"recall@10": measured_recall(index, samples=samples), "samples": samples}
    _show(output, index.stat(), facts, as_json)


def add_from(source: VectorSource, address: str) -> None:
    """Adds vectors to an index."""
    index = open_index(address)
    added = index.add(source)
    typer.echo(f"{added} vectors added to {address}, which has {index.stat().vectors}")


def delete_from(address: str, ids: list[str], ids_file: Path | None, where: str | None, compact: bool) -> None:
    """Deletes vectors of an index, and writes it anew if asked to."""
    index = open_index(address)
    ids = [*ids, *(read_texts(ids_file) if ids_file else [])]
    deleted = index.delete(ids, where=where) if ids or where is not None else 0
    if compact:
        index.compact()
    typer.echo(f"{deleted} vectors deleted from {address}, which has {index.stat().vectors}")


def search_for(
    address: str,
    model: str,
    texts: list[str],
    languages: list[str],
    images: list[Path],
    *,
    merge: Merge,
    top: int,
    where: str | None,
    settings: SearchSettings,
    draft_jpegs: bool,
    trust_remote_code: bool,
    as_json: bool,
) -> None:
    """Prints what is found for texts, each with its language unless there are none, and images, together."""
    index = open_index(address)
    embedder = load_embedder(model, hint="--model", draft_jpegs=draft_jpegs, trust_remote_code=trust_remote_code)
    stated = languages_of(embedder.processor, model)
    for language in dict.fromkeys(languages):
        warn_of_language(language, *stated, model)
    languages = languages or [default_language(embedder.processor)] * len(texts)
    hits = search_index(
        index,
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
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=2, default=str))
        return
    described = [f"{text} [{tag}]" for text, tag in zip(texts, languages, strict=True)]
    title = " + ".join([*described, *(str(path) for path in images)])
    table = Table(title=title, caption=f"{index.stat().vectors} vectors in {address}")
    table.add_column("score", justify="right")
    table.add_column("id", overflow="fold")
    columns = list(index.stat().columns)
    for name in columns:
        table.add_column(name, overflow="fold")
    for hit in hits:
        table.add_row(f"{hit.score:.3f}", hit.id, *(str(hit.metadata[name]) for name in columns))
    plain_console().print(table)


def show_stat(address: str, settings: SearchSettings | None, samples: int, as_json: bool) -> None:
    """Shows what an index holds; with settings of a search, also the recall with them."""
    index = open_index(address)
    facts = {}
    if settings is not None:
        facts = {"recall@10": measured_recall(index, settings, samples=samples), "samples": samples}
        facts |= settings.given()
    _show(address, index.stat(), facts, as_json)


def _show(address: str, stat: IndexStat, facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"index": address} | asdict(stat) | facts, ensure_ascii=False, indent=2))
        return
    columns = ", ".join(f"{name} ({kind})" for name, kind in stat.columns.items()) or "none"
    settings = ", ".join(f"{name} {value}" for name, value in stat.settings.items())
    rows = asdict(stat) | {"bytes": f"{stat.bytes:,}", "columns": columns, "settings": settings or "none"} | facts
    if "recall@10" in facts:
        rows["recall@10"] = f"{facts['recall@10']:.3f} of the exact scan's results"
    table = Table(title=address, show_header=False)
    for name, value in rows.items():
        table.add_row(name, str(value))
    plain_console().print(table)

"""`babelens index search`: what an index holds that is near to texts and images."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..configuration.languages import normalize_language
from .console import plain_console
from .options import INDEX_SETTINGS, AsJson, EfSearch, Index, Nprobe, Refine, TrustRemoteCode, Where, WholeJpegs
from .starting import begin_work

if TYPE_CHECKING:
    from ..search.queries import Merge
    from ..search.settings import SearchSettings


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
    whole_jpegs: WholeJpegs = False,
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
    if whole_jpegs and not image:
        raise typer.BadParameter("there is no --image to read", param_hint="--whole-jpegs")
    from ..search.settings import SearchSettings

    begin_work()

    search_for(
        index,
        model,
        texts,
        languages * len(texts) if len(languages) == 1 else languages,
        image or [],
        merge=merge,
        top=top,
        where=where,
        settings=SearchSettings(ef_search, nprobe, refine, exact),
        draft_jpegs=not whole_jpegs,
        trust_remote_code=trust_remote_code,
        as_json=as_json,
    )


def search_for(
    address: str,
    model: str,
    texts: list[str],
    languages: list[str],
    images: list[Path],
    *,
    merge: "Merge",
    top: int,
    where: str | None,
    settings: "SearchSettings",
    draft_jpegs: bool,
    trust_remote_code: bool,
    as_json: bool,
) -> None:
    """Prints what is found for texts, each with its language unless there are none, and images, together."""
    from rich.table import Table

    from ..inference.stated_languages import languages_of, warn_of_language
    from ..processing.text_inputs import default_language
    from ..search.queries import search_index
    from ..search.vector_index import open_index
    from .models import load_embedder

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

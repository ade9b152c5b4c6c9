"""`babelens search`: finds images in a folder or an index by a description; `babelens index`: builds the index."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..utils.languages import normalize_language
from .common import AsJson, Model, TrustRemoteCode, begin_work, check_folder, check_path, plain_console, print_json


def search(
    model: Model,
    query: Annotated[
        str | None,
        typer.Argument(metavar="QUERY", help="A description of the images to find, such as `ein rotes Auto`."),
    ] = None,
    images: Annotated[Path | None, typer.Option(help="The folder of images.", callback=check_folder)] = None,
    index: Annotated[
        str | None, typer.Option(help="Instead of --images: an index that `babelens index` built.")
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            help="The language of QUERY: `de`, `zh-Hant`.", show_default="the model's native language, if it has one"
        ),
    ] = None,
    image: Annotated[
        list[Path] | None, typer.Option(help="Find images like this one. Repeatable.", callback=check_path)
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="With --index: a filter in SQL, such as `width > 500 AND license = 'cc0'`.")
    ] = None,
    top: Annotated[int, typer.Option(help="Number of images to show.", min=1)] = 10,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Find the images of a folder, or of an index, that fit a description best.

    `babelens search runs/mural "ein rotes Auto" --images photos --language de`

    Each image is shown with its score: the cosine between the embeddings of the image and of the description. Files
    with the same content are shown once, with their count. The first search of a folder encodes its images; later
    searches encode only new or changed ones. Hidden folders, thumbnails and trash are ignored; unreadable images are
    skipped and listed.
    """
    if (query is None or not query.strip()) and (query is not None or not image):
        raise typer.BadParameter("give a description, or --image", param_hint="QUERY")
    if (images is None) == (index is None):
        raise typer.BadParameter("give either --images or --index", param_hint="--images")
    if where is not None and index is None:
        raise typer.BadParameter("--where requires --index", param_hint="--where")
    if index is not None and "://" not in index:
        check_folder(Path(index))
    language = None if language is None else normalize_language(language)
    begin_work()
    from ..inference.embedder import Embedder
    from ..inference.texts import default_language, languages_of, warn_of_language
    from ..search.lance import open_index, search_index
    from ..utils.languages import UNDETERMINED

    opened = open_index(index) if index else None
    embedder = Embedder.from_pretrained(model, draft_jpegs=True, trust_remote_code=trust_remote_code)
    texts = [query] if query is not None else []
    tag = language or (default_language(embedder.processor) if texts else UNDETERMINED)
    if texts:
        warn_of_language(tag, *languages_of(embedder.processor, model), model)
    facts: dict[str, Any] = {"query": query, "language": None if language is None and tag == UNDETERMINED else tag}
    if opened is not None:
        hits = search_index(opened, embedder, texts, language=tag, images=image or [], top=top, where=where)
        facts["results"] = [{"id": hit.id, "score": hit.score, "metadata": hit.metadata} for hit in hits]
        columns = [name for name in opened.schema.names if name != "id"]
        rows = [(f"{hit.score:.3f}", hit.id, *(str(hit.metadata[name]) for name in columns)) for hit in hits]
        number = len(opened)
    else:
        import numpy as np

        from ..inference.image_index import IMAGE_CACHE, ImageIndex

        folder = ImageIndex.of_folder(embedder, images or Path(), cache=IMAGE_CACHE)
        queries = [embedder.encode_text(texts, language=tag)] if texts else []
        queries += [embedder.encode_image(image)] if image else []
        found = folder.search(np.concatenate(queries).mean(axis=0), top)
        facts["results"] = [
            {"file": str(each.path), "score": each.score, "copies": [*map(str, each.copies)]} for each in found
        ]
        facts["skipped"] = {str(path): reason for path, reason in folder.skipped.items()}
        copies = [f" ({len(each.copies) + 1} files)" if each.copies else "" for each in found]
        names = [str(each.path.relative_to(images or Path())) for each in found]
        rows = [(f"{each.score:.3f}", f"{name}{more}") for each, name, more in zip(found, names, copies, strict=True)]
        columns, number = [], len(folder.paths)
    if as_json:
        print_json(facts)
        return
    from rich.table import Table

    title = " + ".join([*texts, *map(str, image or [])]) + (f" [{facts['language']}]" if facts["language"] else "")
    table = Table(title=title, caption=f"{number} images searched")
    table.add_column("score", justify="right")
    for name in ("image", *columns):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*row)
    plain_console().print(table)


def index(
    embeddings: Annotated[
        Path,
        typer.Argument(metavar="EMBEDDINGS", help="The folder that `babelens embed` wrote.", callback=check_folder),
    ],
    output: Annotated[str, typer.Option(help="A new or empty folder for the index, or a LanceDB address.")],
    approximate: Annotated[
        bool, typer.Option("--approximate", help="Search the nearest of many cells (IVF-PQ) instead of all vectors.")
    ] = False,
) -> None:
    """Build a search index of image embeddings, which `babelens search --index` reads.

    `babelens index photos-embedded --output photos.index --approximate`
    """
    begin_work()
    from ..search import build_index

    built = build_index(output, embeddings, approximate=approximate)
    typer.echo(f"{len(built):,} vectors of {built.info.model}: {output}")

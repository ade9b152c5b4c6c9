"""`babelens analyze languages`, `captions` and `neighbors`: analyses of a dual encoder's embeddings."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..configuration.errors import CorpusError, did_you_mean
from ..configuration.languages import normalize_language
from .analysis_options import (
    Captions,
    Figure,
    Gallery,
    Limit,
    Seed,
    Texts,
    default_languages,
    gallery_page,
    load_images,
    show_analysis,
    text_embeddings,
)
from .options import AsJson, BatchSize, Languages, Model, SourceOptions, Split, TextTask, TrustRemoteCode, tags_of
from .starting import begin_work

if TYPE_CHECKING:
    import datasets
    import numpy as np


def languages(
    model: Model,
    data: Texts,
    output: Figure,
    languages: Languages = None,
    split: Split = None,
    source_options: SourceOptions = None,
    limit: Limit = 1000,
    seed: Seed = 0,
    task: TextTask = None,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Map the languages of MODEL by the similarity of their embeddings: SVCCA, a tree and a Laplacian eigenmap.

    `babelens analyze languages runs/mural --data captions --output languages.svg`

    SVCCA compares the embeddings of parallel texts between two languages: singular vectors that hold 99 % of the
    variance, and the mean of their canonical correlations. Compare similarities with that of shuffled texts, which
    the figure names. Some hundreds of texts are needed; the more dimensions the model uses, the more.
    """
    tags = tags_of(languages)
    begin_work()
    from ..evaluation.analysis.figures.maps import draw_language_map
    from ..evaluation.analysis.parallel import language_map

    loading: dict[str, Any] = {"batch_size": batch_size, "trust_remote_code": trust_remote_code}
    _, embeddings = text_embeddings(model, data, tags, split, source_options, limit=limit, task=task, **loading)
    found = language_map(embeddings, seed=seed)
    nearest = max(
        ((a, b) for a in range(len(found.languages)) for b in range(a)), key=lambda pair: found.similarities[pair]
    )
    show_analysis(
        "languages",
        found,
        draw_language_map(found),
        output,
        as_json,
        f"{len(found.languages)} languages on {found.n_texts:,} texts: SVCCA {_mean_of_pairs(found.similarities):.2f} "
        f"on average, {found.similarities[nearest]:.2f} between {found.languages[nearest[1]]} and "
        f"{found.languages[nearest[0]]}, {found.chance:.2f} for shuffled texts",
    )


def captions(
    model: Model,
    data: Texts,
    output: Figure,
    languages: Languages = None,
    split: Split = None,
    source_options: SourceOptions = None,
    method: Annotated[
        Literal["tsne", "umap"], typer.Option(help="The method that lays out the embeddings in the plane.")
    ] = "tsne",
    limit: Limit = 200,
    seed: Seed = 0,
    task: TextTask = None,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Map the captions of all languages in the plane by t-SNE or UMAP, colored by language and by image.

    `babelens analyze captions runs/mural --data photos --output captions.png`

    Beside the map stands how many of a caption's nearest neighbors are captions of the same image, and how many are
    in the same language. Where MODEL keeps languages apart, the second number is far above chance.
    """
    tags = tags_of(languages)
    begin_work()
    from ..evaluation.analysis.embedding_layout import embedding_map
    from ..evaluation.analysis.figures.maps import draw_embedding_map

    loading: dict[str, Any] = {"batch_size": batch_size, "trust_remote_code": trust_remote_code}
    texts, embeddings = text_embeddings(model, data, tags, split, source_options, limit=limit, task=task, **loading)
    found = embedding_map(embeddings, texts.ids, method=method, seed=seed)
    show_analysis(
        "captions",
        found,
        draw_embedding_map(found),
        output,
        as_json,
        f"Of a caption's nearest {len(found.languages) - 1} captions, {found.same_image:.1f} % are of its image "
        f"(chance {found.chance_image:.1f} %), and {found.same_language:.1f} % in its language "
        f"(chance {found.chance_language:.1f} %)",
    )


def neighbors(
    model: Model,
    data: Captions,
    output: Gallery,
    language: Annotated[str, typer.Option(help="The language of the query, as a BCP-47 tag.")],
    query: Annotated[str | None, typer.Option(help="The query: any text.")] = None,
    image_id: Annotated[
        str | None, typer.Option(help="Take the first caption of this image of --data as the query.")
    ] = None,
    languages: Languages = None,
    split: Split = None,
    source_options: SourceOptions = None,
    top: Annotated[int, typer.Option(help="Number of neighbors to show.", min=1)] = 8,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Show the nearest neighbors of a query as a gallery: images, and captions in every language with their images.

    `babelens analyze neighbors runs/mural --data photos --query "ein Hund" --language de --output dog.html`

    The gallery is one HTML page.
    """
    tags = tags_of(languages)
    if (query is None) == (image_id is None):
        raise typer.BadParameter("give a text as --query, or an image of the data as --image-id", param_hint="--query")
    if query is not None and not query.strip():
        raise typer.BadParameter("the query is empty: everything would be as near to it", param_hint="--query")
    language = normalize_language(language)
    begin_work()
    from ..evaluation.analysis.neighbors import nearest_neighbors, neighbor_rows
    from .models import load_embedder

    embedder = load_embedder(model, batch_size=batch_size, trust_remote_code=trust_remote_code)
    corpus = load_images(data, split, tags and [*tags, language], source_options)
    text = _caption_of(corpus, image_id, language) if image_id is not None else query
    assert text is not None
    found = nearest_neighbors(
        embedder,
        corpus,
        text,
        language,
        languages=tags or default_languages(corpus, data),
        image_id=image_id,
        top=top,
    )
    gallery = gallery_page(f"Nearest to {text} [{language}]", neighbor_rows(found, corpus), data)
    lines = [f"Images nearest to {text} [{language}]:"]
    lines += [f"{each.score:.3f}  {each.image_id}" for each in found.images]
    show_analysis("neighbors", found, gallery, output, as_json, "\n".join(lines))


def _caption_of(corpus: "datasets.Dataset", image_id: str, language: str) -> str:
    """The first caption of an image in a language."""
    from ..data.batching.retrieval_sets import retrieval_set

    queries = retrieval_set(corpus, language)
    if image_id not in queries.text_image_ids:
        known = did_you_mean(image_id, queries.text_image_ids)
        raise CorpusError(f"the data have no caption in {language} of an image {image_id!r}{known}")
    return queries.texts[queries.text_image_ids.index(image_id)]


def _mean_of_pairs(similarities: "np.ndarray") -> float:
    import numpy as np

    return float(similarities[~np.eye(len(similarities), dtype=bool)].mean())

"""`babelens analyze languages`, `captions`, `labels`, `neighbors` and `retrieval`: analyses of embeddings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..configuration.errors import CorpusError, did_you_mean
from ..configuration.languages import normalize_language, normalize_languages
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
    from ..evaluation.analysis.side_by_side import nearest_neighbors, neighbor_rows
    from .inputs import load_embedder

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


# ---- Images with the labels of their classes, and with what models find ----


def labels(
    model: Model,
    data: Annotated[
        Path,
        typer.Option(
            help="Images: a folder that has a folder of images for each class.", file_okay=False, exists=True
        ),
    ],
    labels: Annotated[
        Path,
        typer.Option(
            help="The labels of the classes in each language, as for `babelens evaluate classes`.",
            dir_okay=False,
            exists=True,
        ),
    ],
    output: Figure,
    languages: Languages = None,
    method: Annotated[
        Literal["tsne", "umap"], typer.Option(help="The method that lays out the embeddings in the plane.")
    ] = "tsne",
    limit: Limit = 1000,
    seed: Seed = 0,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Map images and the labels of their classes in all languages in one plane, colored by class.

    `babelens analyze labels runs/mla --data animals --labels labels.tsv --output animals.png`

    As in figure 2 of MLA's paper: where images and languages share a space, labels lie among their images.
    """
    tags = tags_of(languages)
    begin_work()
    from ..data.corpus.sampling import evenly_spread
    from ..evaluation.analysis.embedding_layout import label_map
    from ..evaluation.analysis.figures.maps import draw_label_map
    from ..evaluation.class_labels import ClassifiedImages, read_labels
    from .inputs import load_embedder

    embedder = load_embedder(model, batch_size=batch_size, trust_remote_code=trust_remote_code)
    found = ClassifiedImages.of_folder(data)
    named = read_labels(labels, found.classes, tags)
    rows = evenly_spread(len(found.images), limit)
    embedded = {
        language: dict(
            zip(of_classes, embedder.encode_text(list(of_classes.values()), language=language), strict=True)
        )
        for language, of_classes in named.items()
    }
    images = embedder.encode_image([found.images[row] for row in rows])
    result = label_map(images, found.targets[rows].tolist(), embedded, found.classes, method=method, seed=seed)
    accuracies = ", ".join(f"{language} {value:.1f}" for language, value in result.accuracy.items())
    summary = f"Images whose nearest label is that of their class, %: {accuracies}"
    show_analysis("labels", result, draw_label_map(result), output, as_json, summary)


def retrieval(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODELS...", help="The models: folders, or names on the Hub. With --consistency, one."),
    ],
    data: Captions,
    output: Gallery,
    languages: Languages = None,
    split: Split = None,
    source_options: SourceOptions = None,
    direction: Annotated[
        Literal["text-to-image", "image-to-text"], typer.Option(help="What searches what.")
    ] = "text-to-image",
    queries: Annotated[int, typer.Option(help="Number of queries to show in each language.", min=1)] = 3,
    top: Annotated[int, typer.Option(help="How much of what is found to show for each query.", min=1)] = 5,
    differing: Annotated[
        bool,
        typer.Option(
            "--differing", help="Show only queries that some MODELS answer right at once, and others do not."
        ),
    ] = False,
    consistency: Annotated[
        bool,
        typer.Option(
            "--consistency",
            help="Show captions alone, their translations, and all of them together (CLC). With --fit-split CLC-C, "
            "otherwise CLC-A.",
        ),
    ] = False,
    consistency_translator: Annotated[
        str | None,
        typer.Option(
            help="What translates the captions for CLC, as for `babelens evaluate captions`. Without it, captions of "
            "the same image in the other languages are used.",
            metavar="TRANSLATOR",
        ),
    ] = None,
    fit_split: Annotated[
        str | None, typer.Option(help="The split of --data on which CLC-C is fitted, in the first language.")
    ] = None,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Show on a page what several models find for the same queries, one below the other, with what is right framed.

    `babelens analyze retrieval runs/align runs/mural --data photos --languages de --differing --output found.html`

    The queries are chosen by a hash of their image, not by the results, unless --differing asks for it. Beside the
    gallery stands, for all queries, how often each model has a right answer first.
    """
    tags = tags_of(languages)
    if not consistency and (consistency_translator or fit_split):
        hint = "--fit-split" if fit_split else "--consistency-translator"
        raise typer.BadParameter("it is for --consistency: give it as well", param_hint=hint)
    if consistency and (len(models) > 1 or direction == "image-to-text"):
        raise typer.BadParameter("it is for the captions of one model", param_hint="--consistency")
    if fit_split is not None and fit_split == split:
        raise typer.BadParameter("CLC-C would be fitted on what it is shown on", param_hint="--fit-split")
    begin_work()
    from ..configuration.configuration_consistency import CrossLingualConsistencyConfig
    from ..evaluation.analysis.side_by_side import side_by_side, side_by_side_rows, with_consistency
    from ..evaluation.consistency import consistency_scores
    from ..modeling.modeling_consistency import CrossLingualConsistency
    from ..workflows.run_results import named_rows
    from .inputs import load_retrieval_embedder, load_translator

    corpus = load_images(data, split, tags, source_options)
    chosen = tags or default_languages(corpus, data)
    code = {"batch_size": batch_size, "trust_remote_code": trust_remote_code}
    embedders = {name: load_retrieval_embedder(model, **code) for name, model in named_rows(models).items()}
    options: dict[str, Any] = {"queries": queries, "top": top, "differing": differing}
    if consistency:
        (embedder,) = embedders.values()
        machine = consistency_translator and load_translator(
            consistency_translator, None, trust_remote_code, "--consistency-translator"
        )
        chosen = normalize_languages(chosen)
        kind = "mlp" if fit_split else "mean"
        joint = CrossLingualConsistency(CrossLingualConsistencyConfig(languages=chosen, aggregation=kind))
        if fit_split:
            fitted_on = load_images(data, fit_split, tags, source_options)
            joint.fit(*consistency_scores(embedder, fitted_on, chosen[0], chosen, translator=machine or None))
        found = with_consistency(embedder, corpus, chosen, joint, translator=machine or None, **options)
    else:
        way: Any = direction.replace("-", "_")
        found = side_by_side(embedders, corpus, chosen, direction=way, **options)
    gallery = gallery_page(" and ".join(embedders), side_by_side_rows(found, corpus), data)
    lines = [
        f"{language}: {', '.join(f'{name} {value:.1f}' for name, value in of_models.items())}"
        for language, of_models in found.first.items()
    ]
    show_analysis(
        "retrieval", found, gallery, output, as_json, "\n".join(["Right answers that come first, %:", *lines])
    )

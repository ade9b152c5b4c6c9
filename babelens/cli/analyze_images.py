"""`babelens analyze labels` and `retrieval`: images with the labels of their classes, and with what models find."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..configuration.languages import normalize_languages
from .analysis_options import (
    Captions,
    Figure,
    Gallery,
    Limit,
    Seed,
    default_languages,
    gallery_page,
    load_images,
    show_analysis,
)
from .options import AsJson, BatchSize, Languages, Model, SourceOptions, Split, TrustRemoteCode, tags_of
from .starting import begin_work


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
    from .models import load_embedder

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
    from .models import load_retrieval_embedder, load_translator

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

"""`babelens analyze`: one command for each analysis, each of which draws a figure and writes its numbers beside it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..configuration.defaults import FIGURES
from ..configuration.languages import normalize_language
from .options import CAPTIONED_IMAGES, AsJson, BatchSize, Model, Split, TextTask, TrustRemoteCode, split_tags

_RESULTS = "a folder of a run, or a file that `babelens evaluate --output` wrote"
_EMOJI = "or `emoji`: Noto's images of the embedded benchmark"


def _figure_file(file: Path) -> Path:
    if file.suffix.lower() not in FIGURES:
        raise typer.BadParameter(f"{file}: a figure is written as {' or '.join(FIGURES)}")
    return file


def _png_file(file: Path) -> Path:
    if file.suffix.lower() != ".png":
        raise typer.BadParameter(f"{file}: a gallery of images is written as .png")
    return file


def _tags(languages: str | None) -> list[str] | None:
    if languages is None:
        return None
    if not (tags := split_tags(languages)):
        raise typer.BadParameter(f"{languages!r} names no language", param_hint="--languages")
    return tags


Captions = Annotated[str, typer.Option("--data", help=f"Images with captions: {CAPTIONED_IMAGES}; {_EMOJI}.")]
Texts = Annotated[
    str,
    typer.Option(
        "--data",
        help=f"Texts in several languages: images with captions ({CAPTIONED_IMAGES}), a `.tsv` or `.jsonl` file of "
        f"translations, {_EMOJI}. Rows that have a text in every language are compared.",
    ),
]
OptionalCaptions = Annotated[
    str | None,
    typer.Option("--data", help=f"Evaluate models on images with captions: {CAPTIONED_IMAGES}; {_EMOJI}."),
]
Languages = Annotated[
    str | None,
    typer.Option(
        help="The languages: tags separated by commas, such as `en,de,zh-Hant`. Without this option, all languages of "
        "the data."
    ),
]
TestSet = Annotated[
    str | None,
    typer.Option(
        help="The test set, where the results have several, such as `unseen_vendor` of the emoji benchmark. Without "
        "this option, the first."
    ),
]
Figure = Annotated[
    Path,
    typer.Option(
        "--output",
        help="Draw the figure into this file, `.svg` or `.png`, and write its numbers beside it as `.json`.",
        dir_okay=False,
        callback=_figure_file,
    ),
]
Gallery = Annotated[
    Path,
    typer.Option(
        "--output",
        help="Draw the gallery into this PNG file, and write its numbers beside it as `.json`.",
        dir_okay=False,
        callback=_png_file,
    ),
]
Limit = Annotated[int, typer.Option(help="Compare at most this many rows, at even distances.", min=1)]
Seed = Annotated[int, typer.Option(help="The seed of all random numbers.", min=0)]
Metric = Annotated[str, typer.Option(help="The metric, such as `mean_recall`, `t2i_r1` or `i2t_r10`.")]


def languages(
    model: Model,
    data: Texts,
    output: Figure,
    languages: Languages = None,
    split: Split = None,
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
    tags = _tags(languages)
    from .jobs.analyze import analyze_languages
    from .jobs.models import load_embedder

    embedder = load_embedder(model, batch_size=batch_size, trust_remote_code=trust_remote_code)
    analyze_languages(
        embedder, data, tags, split=split, limit=limit, seed=seed, task=task, output=output, as_json=as_json
    )


def captions(
    model: Model,
    data: Texts,
    output: Figure,
    languages: Languages = None,
    split: Split = None,
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
    tags = _tags(languages)
    from .jobs.analyze import analyze_captions
    from .jobs.models import load_embedder

    embedder = load_embedder(model, batch_size=batch_size, trust_remote_code=trust_remote_code)
    analyze_captions(
        embedder,
        data,
        tags,
        split=split,
        limit=limit,
        seed=seed,
        method=method,
        task=task,
        output=output,
        as_json=as_json,
    )


def distances(
    model: Model,
    baseline: Annotated[
        str,
        typer.Option(help="The model that was trained without the term in question: a folder, or a name on the Hub."),
    ],
    data: Captions,
    output: Figure,
    anchor: Annotated[str, typer.Option(help="The language of the anchor.")] = "en",
    languages: Languages = None,
    split: Split = None,
    limit: Limit = 200,
    regions: Annotated[
        str | None,
        typer.Option(
            help="The model that finds the regions of images, for an RC3 that reads regions; as in `search`."
        ),
    ] = None,
    grid: Annotated[
        int | None,
        typer.Option(help="Use a grid of N×N features of that model as regions.", metavar="N", min=1),
    ] = None,
    task: TextTask = None,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Show how a training has moved languages to each other: distance ratios, as in figure 5 of RC3's paper.

    `babelens analyze distances runs/rc3 --baseline runs/rc3-no-kl --data photos --output distances.svg`

    The anchor is an image with its caption in the language --anchor. Its distance to the same image with a caption in
    another language, by MODEL, is divided by the distance by --baseline. A ratio below 1 means that MODEL has brought
    the language nearer. RC3 reads captions together with their images; of dual encoders, the embeddings of the
    captions are compared.
    """
    tags = _tags(languages)
    anchor = normalize_language(anchor)
    if grid and not regions:
        raise typer.BadParameter(
            "there is no image encoder whose features could be used: give --regions", param_hint="--grid"
        )
    from .jobs.analyze_distances import analyze_distances

    analyze_distances(
        model,
        baseline,
        data,
        tags,
        anchor=anchor,
        split=split,
        limit=limit,
        regions=regions,
        grid=grid,
        task=task,
        batch_size=batch_size,
        trust_remote_code=trust_remote_code,
        output=output,
        as_json=as_json,
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
    top: Annotated[int, typer.Option(help="Number of neighbors to show.", min=1)] = 8,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Draw the nearest neighbors of a query as a gallery: images, and captions in every language with their images.

    `babelens analyze neighbors runs/mural --data photos --query "ein Hund" --language de --output dog.png`

    The fonts that the scripts of the captions need are fetched when they are first used. A caption that no font can
    write is shown by its language.
    """
    tags = _tags(languages)
    if (query is None) == (image_id is None):
        raise typer.BadParameter("give a text as --query, or an image of the data as --image-id", param_hint="--query")
    if query is not None and not query.strip():
        raise typer.BadParameter("the query is empty: everything would be as near to it", param_hint="--query")
    language = normalize_language(language)
    from .jobs.analyze import analyze_neighbors
    from .jobs.models import load_embedder

    embedder = load_embedder(model, batch_size=batch_size, trust_remote_code=trust_remote_code)
    analyze_neighbors(
        embedder,
        data,
        tags,
        split=split,
        query=query,
        image_id=image_id,
        language=language,
        top=top,
        output=output,
        as_json=as_json,
    )


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
    tags = _tags(languages)
    from .jobs.analyze import analyze_labels
    from .jobs.models import load_embedder

    embedder = load_embedder(model, batch_size=batch_size, trust_remote_code=trust_remote_code)
    analyze_labels(embedder, data, labels, tags, method=method, limit=limit, seed=seed, output=output, as_json=as_json)


def retrieval(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODELS...", help="The models: folders, or names on the Hub. With --consistency, one."),
    ],
    data: Captions,
    output: Gallery,
    languages: Languages = None,
    split: Split = None,
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
    """Draw what several models find for the same queries, one below the other, with what is right framed.

    `babelens analyze retrieval runs/align runs/mural --data photos --languages de --differing --output found.png`

    The queries are chosen by a hash of their image, not by the results, unless --differing asks for it. Beside the
    gallery stands, for all queries, how often each model has a right answer first.
    """
    tags = _tags(languages)
    if not consistency and (consistency_translator or fit_split):
        hint = "--fit-split" if fit_split else "--consistency-translator"
        raise typer.BadParameter("it is for --consistency: give it as well", param_hint=hint)
    if consistency and (len(models) > 1 or direction == "image-to-text"):
        raise typer.BadParameter("it is for the captions of one model", param_hint="--consistency")
    if fit_split is not None and fit_split == split:
        raise typer.BadParameter("CLC-C would be fitted on what it is shown on", param_hint="--fit-split")
    from .jobs.analyze import analyze_retrieval

    analyze_retrieval(
        models,
        data,
        tags,
        split=split,
        direction=direction,
        queries=queries,
        top=top,
        differing=differing,
        consistency=consistency,
        translator=consistency_translator,
        fit_split=fit_split,
        batch_size=batch_size,
        trust_remote_code=trust_remote_code,
        output=output,
        as_json=as_json,
    )


def agreement(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help=f"With --data, a model. Without it, results: {_RESULTS}.")
    ],
    output: Figure,
    data: OptionalCaptions = None,
    languages: Languages = None,
    split: Split = None,
    test_set: TestSet = None,
    rank: Annotated[
        int, typer.Option(help="An image is found when it is among the first N.", metavar="N", min=1)
    ] = 10,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Show which images every language finds, and which only one.

    `babelens analyze agreement runs/mural --data photos --output agreement.svg`

    An image is found in a language when one of its captions in that language has it among the first --rank. With
    --data, the model SOURCE is evaluated, and the numbers name images by their `image_id`. Without it, the ranks
    beside the results are read, and images are named by their index.
    """
    tags = _tags(languages)
    _check_source(data, split, test_set)
    from .jobs.analyze_results import analyze_agreement

    analyze_agreement(
        source,
        data,
        tags,
        split=split,
        test_set=test_set,
        rank=rank,
        batch_size=batch_size,
        trust_remote_code=trust_remote_code,
        output=output,
        as_json=as_json,
    )


def data(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help=f"The results: {_RESULTS}.", exists=True)],
    recipe: Annotated[
        str, typer.Option(help="The recipe of the training: a file, or a recipe of the package such as `emoji/mural`.")
    ],
    output: Figure,
    languages: Languages = None,
    metric: Metric = "t2i_r10",
    test_set: TestSet = None,
    as_json: AsJson = False,
) -> None:
    """Show recall against the amount of training text in each language, with Spearman's rank correlation.

    `babelens analyze data runs/mural --recipe emoji/mural --output data.svg`

    The data of the recipe are read, and the texts in each language are counted, each once.
    """
    tags = _tags(languages)
    from .jobs.analyze_results import analyze_data

    analyze_data(results, recipe, tags, metric=metric, test_set=test_set, output=output, as_json=as_json)


def forgetting(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODELS...",
            help="Two or more in the order of their training. With --data, models. Without it, results: folders of "
            "runs, folders with a run for each seed, or files that `babelens evaluate --output` wrote.",
        ),
    ],
    output: Figure,
    data: OptionalCaptions = None,
    languages: Languages = None,
    split: Split = None,
    metric: Metric = "mean_recall",
    test_set: TestSet = None,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Show what a training has forgotten: the recall in all languages before and after it.

    `babelens analyze forgetting runs/clip runs/clip-de --data photos --output forgetting.svg`

    Stars mark differences to the first of MODELS that are larger than chance, by the paired bootstrap over images.
    """
    tags = _tags(languages)
    if len(models) < 2:
        raise typer.BadParameter("what was forgotten shows between two models or more", param_hint="MODELS")
    _check_source(data, split, test_set)
    from .jobs.analyze_results import analyze_forgetting

    analyze_forgetting(
        models,
        data,
        tags,
        split=split,
        metric=metric,
        test_set=test_set,
        batch_size=batch_size,
        trust_remote_code=trust_remote_code,
        output=output,
        as_json=as_json,
    )


def _check_source(data: str | None, split: str | None, test_set: str | None) -> None:
    """Checks that --split comes with data, and --test-set with results."""
    if split and not data:
        raise typer.BadParameter("there are no data of which it could be a split: give --data", param_hint="--split")
    if test_set and data:
        raise typer.BadParameter("--data is the test set: results may have several", param_hint="--test-set")


ANALYSES = (languages, captions, labels, distances, neighbors, retrieval, agreement, data, forgetting)

analyze = typer.Typer(
    no_args_is_help=True,
    help="""Look at what a model has learned: each analysis draws a figure and writes its numbers.

    The figures need the extra `babelens[analysis]`: scikit-learn, matplotlib and umap-learn.
    """,
)
for analysis in ANALYSES:
    analyze.command(rich_help_panel="Analyses")(analysis)

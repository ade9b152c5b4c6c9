"""`babelens analyze`: one command for each analysis, each of which draws a figure and writes its numbers beside it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..configuration.errors import BabelensError, ModelFolderError, ModelKindError
from ..configuration.languages import normalize_language, normalize_languages
from .analysis_options import Captions, Figure, Limit, default_languages, load_images, show_analysis
from .analyze_embeddings import captions, labels, languages, neighbors, retrieval
from .analyze_results import agreement, data, forgetting
from .options import AsJson, BatchSize, Languages, Model, SourceOptions, Split, TextTask, TrustRemoteCode, tags_of
from .starting import begin_work

if TYPE_CHECKING:
    import datasets
    import numpy as np

    from ..evaluation.analysis.parallel import ParallelTexts

# ---- `babelens analyze distances`: how a training has moved languages to each other ----


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
    source_options: SourceOptions = None,
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
    tags = tags_of(languages)
    anchor = normalize_language(anchor)
    if grid and not regions:
        raise typer.BadParameter(
            "there is no image encoder whose features could be used: give --regions", param_hint="--grid"
        )
    begin_work()
    from ..evaluation.analysis.distances import distance_ratios
    from ..evaluation.analysis.figures.recall import draw_distance_ratios
    from ..evaluation.analysis.parallel import encode_parallel, parallel_texts
    from .inputs import load_embedder

    names = {"MODEL": model, "--baseline": baseline}
    are_rc3 = [_is_rc3(name) for name in names.values()]
    if len(set(are_rc3)) > 1:
        raise typer.BadParameter(
            f"only one of {model} and {baseline} is an RC3: a text with its image and a text alone have no distances "
            "that could be compared",
            param_hint="--baseline",
        )
    if regions and not any(are_rc3):
        raise typer.BadParameter("dual encoders read no regions", param_hint="--regions")
    if task is not None and any(are_rc3):
        raise typer.BadParameter("an RC3 has no head for each task", param_hint="--task")
    corpus = load_images(data, split, tags and [anchor, *tags], source_options)
    others = normalize_languages(tags or default_languages(corpus, data))
    texts = parallel_texts(corpus, [anchor, *others], limit=limit)
    options: dict[str, Any] = {"batch_size": batch_size, "trust_remote_code": trust_remote_code}
    own, base = (
        _joint(name, hint, corpus, texts, regions, grid, **options)
        if are_rc3[0]
        else encode_parallel(load_embedder(name, hint=hint, **options), texts, task=task)
        for hint, name in names.items()
    )
    found = distance_ratios(own, base, texts.ids, anchor=anchor)
    lines = [
        f"{language}: median ratio {found.median[language]:.3f}, below 1 for {found.nearer[language]:.0f} % of images"
        for language in found.languages
    ]
    show_analysis("distances", found, draw_distance_ratios(found), output, as_json, "\n".join(lines))


_RC3 = "rc3"


def _is_rc3(model: str) -> bool:
    from ..configuration.pretrained import load_config

    try:
        return load_config(model).model_type == _RC3
    except ModelFolderError:  # such as an adapter; loading it tells what is wrong with it
        return False


def _joint(
    model: str,
    hint: str,
    corpus: "datasets.Dataset",
    texts: "ParallelTexts",
    regions: str | None,
    grid: int | None,
    *,
    batch_size: int,
    trust_remote_code: bool,
) -> "dict[str, np.ndarray]":
    """The representations of texts with their images by an RC3 model."""
    from transformers import AutoProcessor

    from ..configuration.pretrained import load_config, load_model, load_processor
    from ..data.batching.views import Images, images_of
    from ..evaluation.analysis.distances import joint_representations
    from ..inference.embedder import default_device
    from ..registry import METHODS
    from .inputs import load_region_finder

    code: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    try:
        names = load_config(model, **code).architectures or []
        # The class that was saved, so that no weight of its head is reported as unexpected; only the encoder is used.
        saved = next((each for each in METHODS[_RC3].models if each.__name__ in names), METHODS[_RC3].model)
        rc3: Any = load_model(saved, model, **code).base_model
        processor = load_processor(AutoProcessor, model, **code)
    except (BabelensError, OSError) as error:
        raise typer.BadParameter(str(error), param_hint=hint) from error
    rc3.to(default_device())
    find_regions = load_region_finder(regions, grid, rc3, processor, **code) if regions else None
    images = images_of(corpus.select(texts.rows))
    if not isinstance(images, Images):
        raise ModelKindError("RC3 reads images, and the data have features in their place")
    return joint_representations(rc3, processor, texts.texts, images, find_regions=find_regions, batch_size=batch_size)


# ---- All analyses ----

ANALYSES = (languages, captions, labels, distances, neighbors, retrieval, agreement, data, forgetting)

analyze = typer.Typer(
    no_args_is_help=True,
    help="""Look at what a model has learned: each analysis draws a figure and writes its numbers.

    The figures need scikit-learn, matplotlib and umap-learn.
    """,
)
for analysis in ANALYSES:
    analyze.command(rich_help_panel="Analyses")(analysis)

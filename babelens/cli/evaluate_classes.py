"""`babelens evaluate classes`: image classification, by labels in any language and without texts."""

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson, BatchSize, Model, ResultsFile, TrustRemoteCode, split_tags

_ZERO_SHOT = "Zero-shot, by labels"
_BY_IMAGES = "By other images"


def classes(
    model: Model,
    data: Annotated[
        Path,
        typer.Option(
            help="The images to classify: a folder that has a folder of images for each class.", file_okay=False
        ),
    ],
    labels: Annotated[
        Path | None,
        typer.Option(
            help="The labels of the classes in each language: a JSON file with an object for each language, a TSV "
            "file with the header `class`, `en`, `de` and so on, or Babel-ImageNet's published file.",
            dir_okay=False,
            rich_help_panel=_ZERO_SHOT,
        ),
    ] = None,
    prompts: Annotated[
        str,
        typer.Option(
            help="The templates of the texts: `photo` (the package's template of each language), `clip` (CLIP's 80 "
            'English ones), `label` (labels alone), or a JSON file such as {"de": ["ein Foto von {}."]}. A language '
            "without a template is asked by its labels alone.",
            rich_help_panel=_ZERO_SHOT,
        ),
    ] = "photo",
    languages: Annotated[
        str | None,
        typer.Option(
            help="The languages to evaluate: tags separated by commas, such as `en,de,zh-Hant`. Without this "
            "option, all languages of the labels.",
            rich_help_panel=_ZERO_SHOT,
        ),
    ] = None,
    train_data: Annotated[
        Path | None,
        typer.Option(
            help="Other images of the same classes, in the same form, for --knn and --linear-probe.",
            file_okay=False,
            rich_help_panel=_BY_IMAGES,
        ),
    ] = None,
    knn: Annotated[
        int | None,
        typer.Option(
            help="Classify by a vote of the K nearest images of --train-data.",
            metavar="K",
            min=1,
            rich_help_panel=_BY_IMAGES,
        ),
    ] = None,
    linear_probe: Annotated[
        bool,
        typer.Option(
            "--linear-probe",
            help="Classify by a logistic regression on the features of --train-data.",
            rich_help_panel=_BY_IMAGES,
        ),
    ] = False,
    output: ResultsFile = None,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Measure image classification: how often the right class is the nearest, and among the five nearest, in percent.

    With --labels, an image is compared with the labels of the classes, language by language. A language is measured on
    the classes that it has a label for.

    With --knn or --linear-probe, an image is compared with images of known class; no text takes part.
    """
    tags = None if languages is None else split_tags(languages)
    if tags == []:
        raise typer.BadParameter(f"{languages!r} names no language", param_hint="--languages")
    if labels is None and knn is None and not linear_probe:
        raise typer.BadParameter(
            "nothing to classify by: give --labels, --knn or --linear-probe", param_hint="--labels"
        )
    if labels is None and tags is not None:
        raise typer.BadParameter("there are no labels in any language: give --labels", param_hint="--languages")
    if (knn or linear_probe) and train_data is None:
        raise typer.BadParameter("there are no images of known class: give --train-data", param_hint="--train-data")
    if train_data is not None and not (knn or linear_probe):
        raise typer.BadParameter("nothing reads them: give --knn or --linear-probe", param_hint="--train-data")
    from .jobs.evaluate_classes import evaluate_classes
    from .jobs.models import load_retrieval_embedder

    evaluate_classes(
        load_retrieval_embedder(model, batch_size=batch_size, trust_remote_code=trust_remote_code),
        data,
        labels,
        prompts=prompts,
        languages=tags,
        train_data=train_data,
        neighbors=knn,
        linear_probe=linear_probe,
        output=output,
        as_json=as_json,
    )

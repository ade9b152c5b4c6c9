"""`babelens evaluate classes`: image classification, by labels in any language or by nearest neighbors."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import (
    Languages,
    Model,
    ResultsFile,
    TrustRemoteCode,
    begin_work,
    plain_console,
    results_table,
    tags_of,
)

if TYPE_CHECKING:
    from ..evaluation.ranking import QueryRanks


def classes(
    model: Model,
    data: Annotated[
        Path,
        typer.Option(
            help="The images to classify: a folder with a subfolder of images for each class.", file_okay=False
        ),
    ],
    labels: Annotated[
        Path | None,
        typer.Option(
            help="The labels in each language: a JSON file with an object for each language, a TSV file with the "
            "header `class`, `en`, `de` and so on, or Babel-ImageNet's file.",
            dir_okay=False,
        ),
    ] = None,
    prompts: Annotated[
        str,
        typer.Option(
            help="The templates: `photo` (one for each language), `clip` (CLIP's 80 in English), `label` (only the "
            'labels), or a JSON file such as {"de": ["ein Foto von {}."]}.',
        ),
    ] = "photo",
    languages: Languages = None,
    train_data: Annotated[
        Path | None,
        typer.Option(help="Other images of the same classes, in the same form, for --knn.", file_okay=False),
    ] = None,
    knn: Annotated[
        int | None,
        typer.Option(help="Classify by a vote of the K nearest images of --train-data.", metavar="K", min=1),
    ] = None,
    output: ResultsFile = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Measure image classification: top-1 and top-5 accuracy in percent.

    With --labels, each image is compared with the labels of the classes, language by language. A language is measured
    on the classes that have a label in it. With --knn, each image is compared with images of known classes.
    """
    tags = tags_of(languages)
    if labels is None and knn is None:
        raise typer.BadParameter("give --labels or --knn", param_hint="--labels")
    if labels is None and tags is not None:
        raise typer.BadParameter("no labels: --languages requires --labels", param_hint="--languages")
    if (knn is None) != (train_data is None):
        raise typer.BadParameter("--knn and --train-data go together", param_hint="--train-data")
    begin_work()
    import numpy as np

    from ..evaluation.classification import (
        PROMPT_SETS,
        ClassifiedImages,
        evaluate_classification,
        group_means,
        language_groups,
        neighbor_accuracy,
        read_labels,
        read_prompts,
    )
    from ..evaluation.results import GROUPS, IMAGES, NEIGHBORS, ZERO_SHOT
    from ..inference.embedder import Embedder
    from .tables import save_results

    embedder = Embedder.from_pretrained(model, trust_remote_code=trust_remote_code)
    tested = ClassifiedImages.of_folder(data)
    trained = None if train_data is None else ClassifiedImages.of_folder(train_data)
    named = None if labels is None else read_labels(labels, tested.classes, tags)
    templates = prompts if prompts in PROMPT_SETS else read_prompts(prompts)
    targets = None if trained is None else tested.targets_among(trained.classes)
    features = embedder.encode_image(tested.images, normalize=False)
    report: dict[str, Any] = {}
    ranks: dict[str, QueryRanks] = {}
    if named is not None:
        of_language: dict[str, QueryRanks] = {}
        zero_shot = evaluate_classification(
            embedder, tested, named, prompts=templates, image_embeddings=features, ranks=of_language
        )
        ranks |= {f"{ZERO_SHOT}/{language}": each for language, each in of_language.items()}
        groups = language_groups(named, len(tested.classes))
        report |= {ZERO_SHOT: zero_shot, GROUPS: group_means(zero_shot, groups)}
    if knn is not None and trained is not None and targets is not None:
        known = embedder.encode_image(trained.images, normalize=False), trained.targets
        voted: list[int] = []
        report[NEIGHBORS] = neighbor_accuracy(*known, features, targets, neighbors=knn, ranks=voted)
        ranks[f"{NEIGHBORS}/{IMAGES}"] = tested.query_ranks(np.array(voted))
    save_results(report, output, dataset=str(data), ranks=ranks)
    _print(str(data), report)


def _print(data: str, report: Mapping[str, Any]) -> None:
    from ..evaluation.results import GROUPS, NEIGHBORS, ZERO_SHOT

    console = plain_console()
    if ZERO_SHOT in report:
        headings = ("top 1", "top 5", "classes", "images", "templates")
        table = results_table("language", *headings, title=f"{data}, accuracy in %")
        for language, numbers in report[ZERO_SHOT].items():
            counts = (f"{numbers[name]:,}" for name in ("n_classes", "n_images", "n_templates"))
            table.add_row(language, *_accuracies(numbers), *counts)
        table.add_section()
        for group, means in report[GROUPS].items():
            table.add_row(f"mean, {group} ({len(means['languages'])})", *_accuracies(means))
        console.print(table)
        for language, numbers in report[ZERO_SHOT].items():
            if "n_equal_labels" in numbers:
                console.print(f"{language}: {numbers['n_equal_labels']} classes share their label with another class")
    if found := report.get(NEIGHBORS):
        top = ", ".join(f"top {k} {found[f'top{k}']:.1f}" for k in (1, 5) if f"top{k}" in found)
        console.print(f"{found['neighbors']} nearest neighbors: {top} ({found['n_train']:,} training images)")


def _accuracies(numbers: Mapping[str, Any]) -> tuple[str, str]:
    return f"{numbers['top1']:.1f}", f"{numbers['top5']:.1f}" if "top5" in numbers else ""

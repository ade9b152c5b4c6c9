"""Image classification, for `babelens evaluate classes`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ...evaluation.class_labels import ClassifiedImages, read_labels, read_prompts
from ...evaluation.classification import (
    evaluate_classification,
    group_means,
    language_groups,
    linear_probe_accuracy,
    neighbor_accuracy,
)
from ...evaluation.query_ranks import QueryRanks
from ...inference.embedder import Embedder
from ...inference.prompts import PROMPT_SETS
from ...workflows.run_results import GROUPS, NEIGHBORS, OF_IMAGES, PROBE, ZERO_SHOT
from ..console import plain_console
from .results import show_results


def evaluate_classes(
    embedder: Embedder,
    data: Path,
    labels: Path | None,
    *,
    prompts: str,
    languages: list[str] | None,
    train_data: Path | None,
    neighbors: int | None,
    linear_probe: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Classifies the images in the ways that were asked for, and shows the results; arguments are the command's."""
    tested = ClassifiedImages.of_folder(data)
    trained = None if train_data is None else ClassifiedImages.of_folder(train_data)
    named = None if labels is None else read_labels(labels, tested.classes, languages)
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
    if trained is not None and targets is not None:
        known = embedder.encode_image(trained.images, normalize=False), trained.targets
        voted: list[int] = []
        probed: list[int] = []
        if neighbors is not None:
            report[NEIGHBORS] = neighbor_accuracy(*known, features, targets, neighbors=neighbors, ranks=voted)
        if linear_probe:
            report[PROBE] = linear_probe_accuracy(*known, features, targets, ranks=probed)
        of_images = {NEIGHBORS: voted, PROBE: probed}
        ranks |= {
            f"{part}/{OF_IMAGES}": tested.query_ranks(np.array(each)) for part, each in of_images.items() if each
        }
    show_results(report, output, as_json, lambda: _print(str(data), report), ranks=ranks)


def _print(data: str, report: Mapping[str, Any]) -> None:
    console = plain_console()
    if ZERO_SHOT in report:
        table = Table(box=SIMPLE_HEAD, title=f"{data}, accuracy in %", title_justify="left")
        table.add_column("language")
        for heading in ("top 1", "top 5", "classes", "images", "templates"):
            table.add_column(heading, justify="right")
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
    for part, title in ((NEIGHBORS, "nearest neighbors"), (PROBE, "linear probe")):
        if part in report:
            top = ", ".join(f"top {k} {report[part][f'top{k}']:.1f}" for k in (1, 5) if f"top{k}" in report[part])
            votes = f"{report[part]['neighbors']} " if part == NEIGHBORS else ""
            console.print(f"{votes}{title}: {top} ({report[part]['n_train']:,} training images)")


def _accuracies(numbers: Mapping[str, Any]) -> tuple[str, str]:
    return f"{numbers['top1']:.1f}", f"{numbers['top5']:.1f}" if "top5" in numbers else ""

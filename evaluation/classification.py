"""Image classification with a dual encoder: zero-shot in any language, and by nearest neighbors.

    data = ClassifiedImages.of_folder("imagenet/val")
    labels = read_labels("babel_imagenet-298.json", data.classes, ["de", "sw"])
    evaluate_classification(Embedder.from_pretrained("runs/mural"), data, labels)["de"]["top1"]

In zero-shot classification, the embedding of a class is the normalized mean of the unit embeddings of its texts, one
for each template (Radford et al. 2021, section 3.1.4). An image is assigned to the class with the nearest embedding.
As in Babel-ImageNet, classes without a label in a language, and their images, are left out for this language.
Languages with few labels therefore have an easier task: compare results within a group of languages, or between
models. Ranks are computed as in `ranking`: a class that ties with the correct one is ranked before it.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ..inference.embedder import Embedder
from ..inference.zero_shot_pipeline import LABEL_ALONE, Prompts, filled, templates_of
from ..utils.errors import InputError, MissingExtraError
from .class_labels import (
    ETCL_GROUPS,
    IMAGENET_CLASSES,
    PHOTO,
    ClassifiedImages,
    Labels,
    babel_imagenet_group,
    prompt_set,
)
from .query_ranks import QueryRanks
from .ranking import embedding_ranks

Numbers = dict[str, Any]

logger = logging.getLogger(__name__)


def evaluate_classification(
    embedder: Embedder,
    data: ClassifiedImages,
    labels: Labels,
    *,
    prompts: Prompts | str = PHOTO,
    image_embeddings: np.ndarray | None = None,
    ranks: dict[str, QueryRanks] | None = None,
    show_progress: bool | None = None,
) -> dict[str, Numbers]:
    """Classifies images by the labels of their classes, language by language.

    Args:
        embedder: the model.
        data: the images and their classes.
        labels: the labels of the classes in each language (`read_labels`).
        prompts: the templates of each language, or the name of one of `PROMPT_SETS`: `photo`, `clip` or `label`.
            Languages without a template use only the labels, with a warning.
        image_embeddings: the embeddings of the images [N, d], if they are already computed.
        ranks: a dictionary to which the rank of each image's class is added, by language, for comparing models image
            by image (`evaluation.comparison`).
        show_progress: as in `Embedder.encode_image`.

    Returns:
        For each language, `top1` and `top5`, the accuracy in percent (without `top5` if there are at most five
        classes); `n_classes` and `n_images`, the numbers of classes with a label and of their images; `n_templates`, 0
        if only labels are used; and, if several classes have exactly the same label, `n_equal_labels`, the number of
        these classes, whose images are never classified correctly.
    """
    given = prompt_set(prompts) if isinstance(prompts, str) else prompts
    templates = {language: templates_of(language, given) for language in labels}
    if prompts != "label" and (missing := [language for language in labels if not templates[language]]):
        logger.warning("there is no template in %s: only the labels are used", ", ".join(missing))
    if image_embeddings is None:
        image_embeddings = embedder.encode_image(data.images, show_progress=show_progress)
    results = {}
    for language, named in labels.items():
        classes = class_embeddings(
            embedder, list(named.values()), templates[language] or [LABEL_ALONE], language, show_progress=show_progress
        )
        row_of = {index: row for row, index in enumerate(named)}
        rows = np.flatnonzero(np.isin(data.targets, list(named)))
        right = [[row_of[index]] for index in data.targets[rows].tolist()]
        found = embedding_ranks(classes, image_embeddings[rows], right).text_to_image  # the images are the queries
        if ranks is not None:
            ranks[language] = data.query_ranks(found, rows)
        results[language] = _accuracies(found, len(named)) | {
            "n_classes": len(named),
            "n_images": len(rows),
            "n_templates": len(templates[language]),
        }
        if equal := sum(count for count in Counter(named.values()).values() if count > 1):
            results[language]["n_equal_labels"] = equal
    return results


def class_embeddings(
    embedder: Embedder,
    labels: Sequence[str],
    templates: Sequence[str],
    language: str,
    *,
    show_progress: bool | None = None,
) -> np.ndarray:
    """Returns the embeddings of classes, [C, d], of unit length: for each class, the normalized mean of the unit
    embeddings of its texts.

    Args:
        embedder: the model.
        labels: the labels of the classes [C].
        templates: the templates of the texts, in which `{}` is replaced by the label.
        language: the BCP-47 tag of labels and templates.
        show_progress: as in `Embedder.encode_text`.
    """
    texts = [filled(template, label) for label in labels for template in templates]
    embeddings = embedder.encode_text(texts, language=language, show_progress=show_progress)
    means = embeddings.reshape(len(labels), len(templates), -1).mean(1)  # [C * T, d] -> [C, d]
    return means / np.linalg.norm(means, axis=1, keepdims=True).clip(min=np.finfo(np.float32).tiny)


def group_means(results: Mapping[str, Numbers], groups: Mapping[str, Sequence[str]]) -> Numbers:
    """Returns the mean over the languages of each group.

    Args:
        results: the result of `evaluate_classification`.
        groups: the languages of each group, such as the result of `language_groups`.

    Returns:
        For `all` and each group with results: `top1`, `top5` and `languages`, the languages in the mean.
    """
    means: Numbers = {}
    for name, languages in ({"all": list(results)} | dict(groups)).items():
        present = [language for language in languages if language in results]
        if present:
            each = [results[language] for language in present]
            measures = [measure for measure in ("top1", "top5") if all(measure in numbers for numbers in each)]
            mean = {measure: float(np.mean([one[measure] for one in each])) for measure in measures}
            means[name] = mean | {"languages": present}
    return means


def language_groups(labels: Labels, n_classes: int) -> dict[str, Sequence[str]]:
    """Returns the groups of languages in the papers: ETCL's `well-resourced` and `under-resourced`; for the labels of
    ImageNet's 1,000 classes also Babel-ImageNet's `low`, `mid` and `high`, by the number of classes with a label,
    without English.

    Args:
        labels: the labels of the classes in each language.
        n_classes: the number of classes in the data.
    """
    groups: dict[str, Sequence[str]] = dict(ETCL_GROUPS)
    if n_classes == IMAGENET_CLASSES:
        for name in ("low", "mid", "high"):
            groups[name] = [
                tag for tag, named in labels.items() if tag != "en" and babel_imagenet_group(len(named)) == name
            ]
    return groups


def neighbor_accuracy(
    train: np.ndarray,
    train_targets: np.ndarray,
    test: np.ndarray,
    test_targets: np.ndarray,
    *,
    neighbors: int,
    ranks: list[int] | None = None,
) -> Numbers:
    """Classifies images by a vote of the nearest labelled images, by cosine, without texts.

    ETCL's paper (appendix A.3) uses the class of the nearest image, `neighbors=1`. If classes have equally many votes,
    the class with the lowest index wins, as in scikit-learn.

    Args:
        train, train_targets: the embeddings of images [N, d] and their classes [N].
        test, test_targets: the embeddings and classes of the images to classify.
        neighbors: the number of images that vote.
        ranks: receives for each classified image 1 if its class was predicted correctly, otherwise 2.

    Returns:
        `top1` in percent, `neighbors`, `n_train` and `n_images`.
    """
    if not 1 <= neighbors <= len(train):
        raise InputError(f"there are only {len(train):,} images for neighbors={neighbors:,}")
    classifier = _sklearn("neighbors").KNeighborsClassifier(neighbors, metric="cosine", algorithm="brute")
    found = np.where(classifier.fit(train, train_targets).predict(test) == test_targets, 1, 2)
    if ranks is not None:
        ranks += found.tolist()
    return {
        "top1": 100.0 * float(np.mean(found == 1)),
        "neighbors": neighbors,
        "n_train": len(train),
        "n_images": len(test),
    }


def _accuracies(ranks: np.ndarray, n_classes: int) -> Numbers:
    """Returns the top-1 and top-5 accuracy in percent."""
    return {f"top{k}": 100.0 * float(np.mean(ranks <= k)) for k in (1, 5) if k == 1 or n_classes > k}


def _sklearn(module: str) -> Any:
    """Imports a module of scikit-learn; raises a `MissingExtraError` without it."""
    try:
        return import_module(f"sklearn.{module}")
    except ImportError as error:
        raise MissingExtraError("nearest neighbors need scikit-learn: pip install scikit-learn") from error

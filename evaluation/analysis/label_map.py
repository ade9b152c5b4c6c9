"""A map of images and the labels of their classes in several languages, by t-SNE (figure 2 of MLA's appendix, arXiv
2206.11091). Distances in a t-SNE map are unreliable, so the accuracy is computed from the embeddings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...utils.errors import InputError
from .numbers import analysis_extra

_PERPLEXITY = 30.0  # lower if there are few points
_COMPONENTS = 50  # dimensions before t-SNE, as in van der Maaten & Hinton (2008)


@dataclass(frozen=True)
class LabelMap:
    """Images and the labels of their classes in the plane.

    Args:
        seed: the seed of t-SNE.
        classes: the names of the classes, [C].
        languages: BCP-47 tags of the labels, [L].
        targets: the class of each image, [N].
        images: the coordinates of each image, [N, 2].
        labels: the coordinates of each label, [L, C, 2]; NaN if a language has no label for a class.
        accuracy: language -> the percentage of images whose nearest label is the label of their class.
    """

    seed: int
    classes: list[str]
    languages: list[str]
    targets: list[int]
    images: np.ndarray
    labels: np.ndarray
    accuracy: dict[str, float]


def label_map(
    images: np.ndarray,
    targets: Sequence[int],
    labels: Mapping[str, Mapping[int, np.ndarray]],
    classes: Sequence[str],
    *,
    seed: int = 0,
) -> LabelMap:
    """Computes a map of images and the labels of their classes.

    Args:
        images: the embeddings of the images, [N, d], of unit length.
        targets: the class index of each image, [N].
        labels: language -> class index -> the embedding of the label, [d], of unit length.
        classes: the names of the classes, [C].
        seed: the seed of t-SNE.
    """
    places = [(language, index) for language, named in labels.items() for index in named]
    if not places or len(images) + len(places) < 5:
        raise InputError("a map of images and labels needs at least one label, and at least five images and labels")
    points = np.concatenate([images, np.stack([labels[language][index] for language, index in places])])
    coordinates = _tsne(points, seed)
    languages = list(labels)
    of_labels = np.full((len(languages), len(classes), 2), np.nan)
    for (language, index), place in zip(places, coordinates[len(images) :], strict=True):
        of_labels[languages.index(language), index] = place
    right = np.asarray(targets)
    accuracy = {}
    for language, named in labels.items():
        nearest = np.array(list(named))[(images @ np.stack(list(named.values())).T).argmax(1)]
        accuracy[language] = 100 * float((nearest == right).mean())
    return LabelMap(seed, list(classes), languages, right.tolist(), coordinates[: len(images)], of_labels, accuracy)


def _tsne(points: np.ndarray, seed: int) -> np.ndarray:
    with analysis_extra():
        from sklearn.decomposition import PCA
        from sklearn.manifold import TSNE
    if min(points.shape) > _COMPONENTS:
        points = PCA(_COMPONENTS, random_state=seed).fit_transform(points)
    perplexity = min(_PERPLEXITY, (len(points) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=seed, n_jobs=1).fit_transform(points)

"""A map of captions in the plane, by t-SNE or UMAP, and one of images with the labels of their classes in several
languages (figure 2 of MLA's appendix, arXiv 2206.11091).

Distances in such a map are not to be trusted; beside it stand numbers of the embeddings themselves: whether a
caption's nearest neighbors are the other captions of its image, or captions in its language.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from ...configuration.errors import InputError
from .numbers import analysis_extra

_PERPLEXITY = 30.0  # of t-SNE, and fewer for few captions
_NEIGHBORS = 15  # of UMAP
# The steps of t-SNE, and how far away points are taken together: scikit-learn's own, and others for many points, with
# which 20,000 take less than a minute.
_EXACT, _FAST, _MANY = {"max_iter": 1000, "angle": 0.5}, {"max_iter": 500, "angle": 0.7}, 5_000
_DISTANCES = 16  # MiB of distances that are held at a time
_COMPONENTS = 50  # dimensions before t-SNE, as van der Maaten & Hinton (2008) reduce them


@dataclass(frozen=True)
class EmbeddingMap:
    """Captions in the plane.

    Args:
        method: `tsne` or `umap`.
        settings: the settings of the method.
        seed: its seed.
        languages: BCP-47 tags, [L].
        ids: the image of the captions of each index, [N].
        coordinates: the coordinates of each caption, [L, N, 2].
        same_image: of the L - 1 nearest captions of each caption by cosine, those of the same image, in percent.
        same_language: those in the same language, in percent.
        chance_image, chance_language: both for neighbors that are drawn at random.
    """

    method: str
    settings: dict[str, float]
    seed: int
    languages: list[str]
    ids: list[str]
    coordinates: np.ndarray
    same_image: float
    same_language: float
    chance_image: float
    chance_language: float


@dataclass(frozen=True)
class LabelMap:
    """Images and the labels of their classes in the plane.

    Args:
        method, settings, seed: as in `EmbeddingMap`.
        classes: the names of the classes, [C].
        languages: BCP-47 tags of the labels, [L].
        targets: the class of each image, [N].
        images: the coordinates of each image, [N, 2].
        labels: those of each label, [L, C, 2]; NaN for a class that a language has no label for.
        accuracy: language -> the share of images, in percent, whose nearest label in it is that of their class.
    """

    method: str
    settings: dict[str, float]
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
    method: Literal["tsne", "umap"] = "tsne",
    seed: int = 0,
) -> LabelMap:
    """Lays out images and the labels of their classes in one plane.

    Args:
        images: the embeddings of the images, [N, d], of unit length.
        targets: the index of each image's class, [N].
        labels: language -> index of a class -> the embedding of its label, [d], of unit length.
        classes: the names of the classes, [C].
        method, seed: as in `embedding_map`.

    Raises:
        MissingExtraError: without scikit-learn, or umap-learn.
        InputError: for fewer than five images and labels, or no label.
    """
    places = [(language, index) for language, named in labels.items() for index in named]
    if not places or len(images) + len(places) < 5:
        raise InputError("a map of images and labels needs a label, and five images and labels at least")
    points = np.concatenate([images, np.stack([labels[language][index] for language, index in places])])
    coordinates, settings = {"tsne": _tsne, "umap": _umap}[method](points, seed)
    languages = list(labels)
    of_labels = np.full((len(languages), len(classes), 2), np.nan)
    for (language, index), place in zip(places, coordinates[len(images) :], strict=True):
        of_labels[languages.index(language), index] = place
    right = np.asarray(targets)
    accuracy = {}
    for language, named in labels.items():
        nearest = np.array(list(named))[(images @ np.stack(list(named.values())).T).argmax(1)]
        accuracy[language] = 100 * float((nearest == right).mean())
    return LabelMap(
        method,
        settings,
        seed,
        list(classes),
        languages,
        right.tolist(),
        coordinates[: len(images)],
        of_labels,
        accuracy,
    )


def embedding_map(
    embeddings: Mapping[str, np.ndarray],
    ids: Sequence[str],
    *,
    method: Literal["tsne", "umap"] = "tsne",
    seed: int = 0,
) -> EmbeddingMap:
    """Lays out the embeddings of parallel captions in the plane.

    Args:
        embeddings: language -> the embeddings of captions of the same images, [N, d], as `encode_parallel` returns
            them.
        ids: the `image_id` of each index, [N].
        method: `tsne` of scikit-learn, or `umap` of umap-learn.
        seed: the seed of the method.

    Raises:
        MissingExtraError: without scikit-learn, or umap-learn.
        InputError: for fewer than two languages or five captions, and for another number of ids than of embeddings.
    """
    languages = list(embeddings)
    points = np.concatenate(list(embeddings.values()))  # [L * N, d], language by language
    if len(languages) < 2 or len(points) < 5:
        raise InputError("a map of captions needs two languages and five captions at least")
    if {len(each) for each in embeddings.values()} != {len(ids)}:
        raise InputError(f"there are {len(ids)} ids: every language needs as many embeddings")
    lay_out = {"tsne": _tsne, "umap": _umap}[method]
    coordinates, settings = lay_out(points, seed)
    n_others, n_languages, n_images = len(points) - 1, len(languages), len(ids)
    same_image, same_language = _same(points, n_languages, n_images)
    return EmbeddingMap(
        method=method,
        settings=settings,
        seed=seed,
        languages=languages,
        ids=list(ids),
        coordinates=coordinates.reshape(n_languages, n_images, 2),
        same_image=same_image,
        same_language=same_language,
        chance_image=100 * (n_languages - 1) / n_others,
        chance_language=100 * (n_images - 1) / n_others,
    )


def _tsne(points: np.ndarray, seed: int) -> tuple[np.ndarray, dict[str, float]]:
    with analysis_extra():
        from sklearn.decomposition import PCA
        from sklearn.manifold import TSNE
    settings = {"perplexity": min(_PERPLEXITY, (len(points) - 1) / 3)}
    settings |= _FAST if len(points) > _MANY else _EXACT
    if min(points.shape) > _COMPONENTS:
        settings["components"] = _COMPONENTS
        points = PCA(_COMPONENTS, random_state=seed).fit_transform(points)
    steps = {"max_iter": int(settings["max_iter"]), "angle": settings["angle"]}
    layout = TSNE(perplexity=settings["perplexity"], **steps, init="pca", random_state=seed, n_jobs=1)
    return layout.fit_transform(points), settings


def _umap(points: np.ndarray, seed: int) -> tuple[np.ndarray, dict[str, float]]:
    with analysis_extra(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that umap-learn imports
        from umap import UMAP
    settings: dict[str, float] = {"n_neighbors": min(_NEIGHBORS, len(points) - 1)}
    initial = "spectral" if len(points) > 4 * settings["n_neighbors"] else "random"  # too few for its eigenvectors
    options: dict[str, Any] = {"metric": "cosine", "init": initial, "random_state": seed, "n_jobs": 1}
    threads = torch.get_num_threads()
    try:
        return UMAP(**settings, **options).fit_transform(points), settings
    finally:
        torch.set_num_threads(threads)  # numba, which shares torch's OpenMP, leaves it with all cores


def _same(points: np.ndarray, n_languages: int, n_images: int) -> tuple[float, float]:
    """The percentage of each caption's L - 1 nearest captions that are of its image, and that are in its language."""
    with analysis_extra():
        from sklearn import config_context
        from sklearn.neighbors import NearestNeighbors
    nearest = NearestNeighbors(n_neighbors=n_languages - 1, metric="cosine", algorithm="brute").fit(points)
    with config_context(working_memory=_DISTANCES):
        neighbors = nearest.kneighbors(return_distance=False)  # [L * N, L - 1], without the caption itself
    index = np.arange(len(points))[:, None]
    same_image = neighbors % n_images == index % n_images
    same_language = neighbors // n_images == index // n_images
    return 100 * float(same_image.mean()), 100 * float(same_language.mean())

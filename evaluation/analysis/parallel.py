"""Parallel texts, one in every language for each row of a corpus, and the similarities of languages computed from
their embeddings.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import datasets
import numpy as np
import pyarrow as pa

from ...data.corpus.caption_index import CaptionIndex
from ...data.corpus.corpus import describe, evenly_spaced, languages_of
from ...inference.embedder import Embedder
from ...utils.errors import CorpusError, InputError
from ...utils.languages import normalize_languages
from .numbers import analysis_extra


@dataclass(frozen=True)
class ParallelTexts:
    """Texts with the same meaning in several languages.

    Args:
        ids: the `image_id` of each text's row, or the index of the row in a corpus of translations, [N].
        texts: language -> the texts [N]; texts with the same index are translations of each other.
        rows: the row of each text in the corpus, [N].
    """

    ids: list[str]
    texts: Mapping[str, list[str]]
    rows: list[int]

    @property
    def languages(self) -> list[str]:
        """The languages, in the order of `texts`."""
        return list(self.texts)


def parallel_texts(
    corpus: datasets.Dataset, languages: str | list[str] | tuple[str, ...], *, limit: int | None = None
) -> ParallelTexts:
    """Returns the first text in each language of every row that has texts in all languages.

    Args:
        corpus: a caption corpus or a translation corpus. If several rows have the same `image_id`, the first is used.
        languages: BCP-47 tags.
        limit: the maximum number of rows, which are evenly spaced.
    """
    tags = list(dict.fromkeys(normalize_languages(languages)))
    if isinstance(corpus, datasets.IterableDataset):
        raise CorpusError("parallel texts need all rows at once: load the corpus as a Dataset")
    columns = [name for name in ("captions", "image_id") if name in corpus.column_names]
    table = corpus.select_columns(columns).with_format("arrow")[:]
    index = CaptionIndex(table)
    if missing := [tag for tag in tags if tag not in index.languages]:
        raise CorpusError(f"no captions in {', '.join(missing)}; the corpus has {describe(languages_of(corpus))}")
    captions: dict[str, np.ndarray] = {}  # the index of each row's first caption in the language, or -1
    for tag in tags:
        own = index.captions_in(tag)
        found, first = np.unique(index.rows[own], return_index=True)
        captions[tag] = np.full(len(table), -1)
        captions[tag][found] = own[first]
    complete = np.flatnonzero(np.all([each >= 0 for each in captions.values()], axis=0))
    _, first = np.unique(index.concepts[complete], return_index=True)
    rows = complete[np.sort(first)]
    if not len(rows):
        fewest = min(tags, key=lambda tag: int((captions[tag] >= 0).sum()))
        raise CorpusError(
            f"no row has texts in all of {', '.join(tags)}; only {(captions[fewest] >= 0).sum()} rows have "
            f"texts in {fewest}"
        )
    if limit is not None:
        rows = rows[evenly_spaced(len(rows), limit)]
    ids = [str(name) for name in table["image_id"].take(pa.array(rows)).to_pylist()] if "image_id" in columns else None
    return ParallelTexts(
        ids=[str(row) for row in rows] if ids is None else ids,
        texts={tag: index.texts.take(pa.array(captions[tag][rows])).to_pylist() for tag in tags},
        rows=rows.tolist(),
    )


def encode_parallel(
    embedder: Embedder, parallel: ParallelTexts, *, task: str | None = None, show_progress: bool | None = None
) -> dict[str, np.ndarray]:
    """Returns the embeddings of parallel texts: language -> float32 [N, d].

    Args:
        embedder: the model.
        parallel: the texts.
        task, show_progress: as in `Embedder.encode_text`.
    """
    return {
        language: embedder.encode_text(texts, language=language, task=task, show_progress=show_progress)
        for language, texts in parallel.texts.items()
    }


# ---- Similarities of languages by SVCCA, their map, and their tree ----
# After (MURAL, arXiv 2109.05125, section 5 and figure 3).
# SVCCA (Raghu et al. 2017, arXiv 1706.05806) compares two representations of the same texts: it keeps the singular #
# vectors with 99 % of the variance of each, and averages the canonical correlations between the two subspaces. It is #
# invariant to rotation, translation and scaling of either representation. As in Kudugunta et al. (2019, arXiv
# 1909.02197), which MURAL follows, the similarities are the weights of a graph, which Laplacian eigenmaps (Belkin &
# Niyogi 2003) lay out.


VARIANCE = 0.99
_FEWEST = 4  # languages that a two-dimensional map can distinguish


@dataclass(frozen=True)
class LanguageMap:
    """The similarity of a model's embeddings of parallel texts between languages.

    Args:
        languages: BCP-47 tags, [L].
        n_texts: the number of texts in each language.
        similarities: the SVCCA similarity of each pair of languages, from 0 to 1, [L, L].
        chance: the mean similarity of successive languages if the texts of one are shuffled, as a baseline for the
            similarities. It grows with the number of components and falls with the number of texts.
        components: language -> the number of singular vectors that were kept.
        variance: the share of the variance that they explain.
        coordinates: the Laplacian eigenmap of the similarities, [L, 2].
        tree: the steps of average linkage, as `scipy.cluster.hierarchy.linkage` returns them: the indices of the two
            clusters, their distance (1 - similarity) and their size, [L - 1, 4].
        order: the languages in the order of the tree's leaves.
        seed: the seed of the shuffling and of the eigenmap.
    """

    languages: list[str]
    n_texts: int
    similarities: np.ndarray
    chance: float
    components: dict[str, int]
    variance: float
    coordinates: np.ndarray
    tree: np.ndarray
    order: list[str]
    seed: int


def svcca(x: np.ndarray, y: np.ndarray, *, variance: float = VARIANCE) -> float:
    """Returns the SVCCA similarity of two representations of the same texts, from 0 to 1.

    Args:
        x, y: one row for each text, [N, d] and [N, e].
        variance: the share of the variance to keep in each representation.
    """
    if len(x) != len(y):
        raise InputError(f"SVCCA compares representations of the same texts, but there are {len(x)} and {len(y)}")
    axes = [_principal_axes(each, variance, name) for each, name in ((x, "x"), (y, "y"))]
    _check_count({"x": axes[0], "y": axes[1]}, variance)
    return _mean_correlation(*axes)


def language_map(embeddings: Mapping[str, np.ndarray], *, variance: float = VARIANCE, seed: int = 0) -> LanguageMap:
    """Compares languages by their embeddings of parallel texts.

    Args:
        embeddings: language -> the embeddings of the same texts, [N, d], as `encode_parallel` returns them.
        variance: as in `svcca`.
        seed: the seed of the eigenmap's solver, and of the shuffling for `chance`.
    """
    with analysis_extra():
        from scipy.cluster import hierarchy
        from scipy.spatial.distance import squareform
        from sklearn.manifold import SpectralEmbedding
    languages = list(embeddings)
    if len(languages) < _FEWEST:
        raise InputError(f"a map needs at least {_FEWEST} languages, but there are {len(languages)}")
    if len(counts := {len(each) for each in embeddings.values()}) > 1:
        raise InputError(f"SVCCA compares embeddings of the same texts, but the languages have {sorted(counts)}")
    axes = {language: _principal_axes(each, variance, language) for language, each in embeddings.items()}
    _check_count(axes, variance)
    similarities = np.eye(len(languages))
    for row, first in enumerate(languages):
        for column in range(row):
            similarity = _mean_correlation(axes[first], axes[languages[column]])
            similarities[row, column] = similarities[column, row] = similarity
    tree = hierarchy.linkage(squareform(1 - similarities, checks=False), "average", optimal_ordering=True)
    layout = SpectralEmbedding(n_components=2, affinity="precomputed", random_state=seed)
    return LanguageMap(
        languages=languages,
        n_texts=counts.pop(),
        similarities=similarities,
        chance=_chance(list(axes.values()), seed),
        components={language: each.shape[1] for language, each in axes.items()},
        variance=variance,
        coordinates=layout.fit_transform(similarities),
        tree=tree,
        order=[languages[leaf] for leaf in hierarchy.leaves_list(tree)],
        seed=seed,
    )


def _principal_axes(x: np.ndarray, variance: float, name: str) -> np.ndarray:
    """Returns the left singular vectors with this share of the variance, [N, k], unscaled, because canonical
    correlations do not depend on the scale of the columns of a matrix."""
    centred = x.astype(np.float64) - x.mean(0, dtype=np.float64)
    vectors, values, _ = np.linalg.svd(centred, full_matrices=False)
    held = np.cumsum(values**2)
    if not held[-1] > np.finfo(np.float32).eps ** 2 * len(x):
        raise InputError(f"{name}: all texts have the same embedding, so there is nothing to compare")
    return vectors[:, : int(np.searchsorted(held, variance * held[-1])) + 1]


def _mean_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Returns the mean canonical correlation between two spaces with orthonormal bases, [N, k] and [N, m]."""
    return float(np.linalg.svd(x.T @ y, compute_uv=False).clip(0, 1).mean())


def _check_count(axes: Mapping[str, np.ndarray], variance: float) -> None:
    """Raises an error if there are so few texts that some correlations are always 1."""
    (first, k), (second, m) = sorted(
        ((name, each.shape[1]) for name, each in axes.items()), key=lambda item: -item[1]
    )[:2]
    n_texts = len(axes[first])
    if k + m > n_texts - 1:
        raise InputError(
            f"{n_texts} texts are too few: {variance:.0%} of the variance takes {k} dimensions in {first} and {m} in "
            f"{second}; with fewer than {k + m + 1} texts, some correlations are always 1"
        )


def _chance(axes: list[np.ndarray], seed: int) -> float:
    random = np.random.default_rng(seed)
    pairs = zip(axes, [*axes[1:], axes[0]], strict=True)
    return float(np.mean([_mean_correlation(x, y[random.permutation(len(y))]) for x, y in pairs]))

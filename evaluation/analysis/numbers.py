"""The numbers of the papers' analyses: languages by SVCCA, images and labels by t-SNE, distances of languages, and the
results of several models for the same queries."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import datasets
import numpy as np
import pyarrow as pa
from transformers import PreTrainedModel, ProcessorMixin

from ...data.batching.retrieval_sets import RetrievalSets
from ...data.batching.views import images_of
from ...data.corpus.caption_index import CaptionIndex
from ...data.corpus.corpus import describe, evenly_spaced, languages_of
from ...inference.embedder import Embedder, ImageLike
from ...modeling.encoding import evaluation_mode, progress_bar
from ...utils.errors import CorpusError, InputError, MissingExtraError
from ...utils.languages import normalize_languages
from ..ranking import embedding_ranks


@contextmanager
def analysis_extra() -> Iterator[None]:
    """A context for importing scikit-learn, scipy and matplotlib, with an error that says how to install them."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(
            f"analyses need {error.name or 'a library that cannot be imported'}: "
            "pip install matplotlib scikit-learn scipy"
        ) from error


def as_json(result: Any) -> Any:
    """Converts the numbers of an analysis to JSON values: dataclasses to objects, arrays to lists, NaN to null."""
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        return {field.name: as_json(getattr(result, field.name)) for field in dataclasses.fields(result)}
    if isinstance(result, Mapping):
        return {str(name): as_json(value) for name, value in result.items()}
    if isinstance(result, np.ndarray):
        return as_json(result.tolist())
    if isinstance(result, list | tuple):
        return [as_json(value) for value in result]
    if isinstance(result, np.generic):
        result = result.item()
    return None if isinstance(result, float) and not np.isfinite(result) else result


# ---- Parallel texts, one in every language for each row of a corpus ----


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
    """Returns the embeddings of parallel texts: language -> float32 [N, d]."""
    return {
        language: embedder.encode_text(texts, language=language, task=task, show_progress=show_progress)
        for language, texts in parallel.texts.items()
    }


# ---- Similarities of languages by SVCCA, their map, and their tree ----
# After MURAL, arXiv 2109.05125, section 5 and figure 3. SVCCA (Raghu et al. 2017, arXiv 1706.05806) keeps the singular
# vectors with 99 % of the variance of two representations of the same texts, and averages the canonical correlations
# between the subspaces; rotation, translation and scaling change nothing. As in Kudugunta et al. (2019, arXiv
# 1909.02197), the similarities are the weights of a graph, which Laplacian eigenmaps (Belkin & Niyogi 2003) lay out.


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


# ---- Images and the labels of their classes, by t-SNE (MLA, arXiv 2206.11091, appendix, figure 2) ----
# Distances in a t-SNE map are unreliable, so the accuracy is computed from the embeddings.

_PERPLEXITY = 30.0  # lower if there are few points
_COMPONENTS = 50  # dimensions before t-SNE, as in van der Maaten & Hinton (2008)


@dataclass(frozen=True)
class LabelMap:
    """Images and the labels of their classes in the plane.

    Args:
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


# ---- Distance ratios: how training moves languages closer to each other (RC3, arXiv 2305.07927, figure 5) ----
# The anchor is an image with its English text. The ratio is the Euclidean distance between it and the same image with
# a text in another language, in a model trained with a term of the loss (in the paper, KL(P_vtr || P_tr)), divided by
# their distance in a model trained without it: below 1, training has brought the language closer. A representation of
# RC3 is its VtR, the state at [CLS] of a text with its image; that of a dual encoder is the embedding of the text.


@dataclass(frozen=True)
class DistanceRatios:
    """The distances of languages to an anchor in two models.

    Args:
        anchor: the language of the anchor. languages: the other languages, BCP-47 tags, [L].
        ids: the image of each index, [N].
        distances, baseline_distances: the distances for each language and image, in the model and in the baseline, [L,
            N].
        ratios: the distances divided by the baseline's, [L, N]; null if the baseline's distance is 0.
        median: language -> the median of its ratios.
        nearer: language -> the percentage of images with a ratio below 1.
    """

    anchor: str
    languages: list[str]
    ids: list[str]
    distances: np.ndarray
    baseline_distances: np.ndarray
    ratios: np.ndarray
    median: dict[str, float]
    nearer: dict[str, float]


def distance_ratios(
    representations: Mapping[str, np.ndarray], baseline: Mapping[str, np.ndarray], ids: Sequence[str], *, anchor: str
) -> DistanceRatios:
    """Compares the distances to an anchor in two models.

    Args:
        representations: language -> the representations of parallel captions, [N, d], with their images
            (`joint_representations`) or without (`encode_parallel`).
        baseline: the same for the model trained without the term, [N, e].
    """
    languages = [language for language in representations if language != anchor]
    for name, given in (("the model", representations), ("the baseline", baseline)):
        if missing := [language for language in (anchor, *languages) if language not in given]:
            raise InputError(f"{name} has no representations in {', '.join(missing)}")
        if {len(each) for each in given.values()} != {len(ids)}:
            raise InputError(f"{name}: there are {len(ids)} ids, but not every language has as many representations")
    if not languages:
        raise InputError(f"there is no language other than the anchor {anchor}")
    own, base = (
        np.stack([np.linalg.norm(given[language] - given[anchor], axis=1) for language in languages])
        for given in (representations, baseline)
    )
    ratios = np.divide(own, base, out=np.full_like(own, np.nan), where=base > 0)
    for language, row in zip(languages, ratios, strict=True):
        if np.isnan(row).all():
            raise InputError(f"the baseline does not distinguish {language} from {anchor}: all distances are 0")
    return DistanceRatios(
        anchor=anchor,
        languages=languages,
        ids=list(ids),
        distances=own,
        baseline_distances=base,
        ratios=ratios,
        median={language: float(np.nanmedian(row)) for language, row in zip(languages, ratios, strict=True)},
        nearer={
            language: 100 * float(np.mean(row[np.isfinite(row)] < 1))
            for language, row in zip(languages, ratios, strict=True)
        },
    )


def joint_representations(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    texts: Mapping[str, Sequence[str]],
    images: Sequence[ImageLike],
    *,
    find_regions: Callable[[Sequence[Any]], np.ndarray] | None = None,
    batch_size: int = 64,
    show_progress: bool | None = None,
) -> dict[str, np.ndarray]:
    """Returns RC3's joint representations of texts and their images (VtR): language -> float32 [N, d].

    Args:
        model: an `Rc3Model`, whose encoder reads a text together with an image.
        texts: language -> the texts of the images, [N].
        find_regions: computes the regions of images for a model that reads regions, such as a `RegionExtractor`.
    """
    if {len(each) for each in texts.values()} != {len(images)}:
        raise InputError(f"there are {len(images)} images, but not every language has as many texts")
    found: dict[str, list[np.ndarray]] = {language: [] for language in texts}
    bar = progress_bar(len(images), "Encoding texts with images", show_progress)
    with evaluation_mode(model), bar:
        for start in range(0, len(images), batch_size):
            rows = range(start, min(start + batch_size, len(images)))
            batch = [images[row] for row in rows]
            visual: dict[str, Any] = {"images": batch}
            if find_regions is not None:
                visual = {"regions": list(find_regions(batch))} | (visual if model.config.has_patches else {})
            for language, given in texts.items():
                inputs = processor(text=[given[row] for row in rows], language=language, return_tensors="pt", **visual)
                states = model.encode(**inputs.to(model.device, model.dtype)).pooler_output  # [n, d]
                found[language].append(states.float().cpu().numpy())
            bar.update(len(rows))
    representations = {language: np.concatenate(parts) for language, parts in found.items()}
    for language, rows_of in representations.items():
        if not np.isfinite(rows_of).all():
            raise InputError(f"the representations of {type(model).__name__} in {language} are not finite")
    return representations


# ---- Results of several models for the same queries (MURAL, figures 4 to 6 and 9 to 14; MLA, figure 1) ----

Direction = Literal["text-to-image", "image-to-text"]


@dataclass(frozen=True)
class Found:
    """The results of a model for a query.

    Args:
        candidates: the indices of the best images (rows of the corpus) or texts, best first.
        names: their `image_id`, or the texts.
        right: whether each is correct.
        rank: the rank of the best correct candidate, from 1; ties count against the model.
    """

    candidates: list[int]
    names: list[str]
    right: list[bool]
    rank: int


@dataclass(frozen=True)
class ComparedQuery:
    """A query and the results of each model.

    Args:
        language: the BCP-47 tag of the texts.
        query: the text, or the `image_id` of the image.
        row: the row of the query's image in the corpus.
        found: the name of each model -> its results.
    """

    language: str
    query: str
    row: int
    found: dict[str, Found]


@dataclass(frozen=True)
class SideBySide:
    """The results of several models for the same queries.

    Args:
        queries: the selected queries.
        first: language -> model -> R@1 over all queries, in percent.
    """

    direction: Direction
    queries: list[ComparedQuery]
    first: dict[str, dict[str, float]]


def side_by_side(
    embedders: Mapping[str, Embedder],
    corpus: datasets.Dataset,
    languages: str | list[str] | tuple[str, ...],
    *,
    direction: Direction = "text-to-image",
    queries: int = 3,
    top: int = 5,
    differing: bool = False,
    show_progress: bool | None = None,
) -> SideBySide:
    """Searches a caption corpus with several models, and returns their results for some queries in each language.

    Args:
        queries: the number of queries in each language, selected by a hash of their image, independently of the
            results.
        differing: whether to select only queries that some models, but not all, answer correctly in first place.
    """
    if not embedders:
        raise InputError("there are no models to compare")
    of_corpus = RetrievalSets(corpus)
    images = {
        name: embedder.encode_image(images_of(corpus), show_progress=show_progress)
        for name, embedder in embedders.items()
    }
    result = SideBySide(direction, [], {})
    for language in normalize_languages(languages):
        of_language = of_corpus.of(language)
        right, names = of_language.text_to_images, of_language.image_ids
        image_of = np.array([own[0] for own in right])  # for each query
        rows = np.arange(len(right))
        if direction == "image-to-text":
            texts_of: dict[int, list[int]] = {}
            for text, own in enumerate(of_language.text_to_images):
                for image in own:
                    texts_of.setdefault(image, []).append(text)
            right, names = list(texts_of.values()), of_language.texts
            image_of = rows = np.array(list(texts_of))
        ranks, scores = {}, {}
        for name, embedder in embedders.items():
            texts = embedder.encode_text(of_language.texts, language=language, show_progress=show_progress)
            own_images = images[name][of_language.rows]
            found = embedding_ranks(own_images, texts, of_language.text_to_images)
            ranks[name] = found.text_to_image if direction == "text-to-image" else found.image_to_text[rows]
            scores[name] = (texts, own_images) if direction == "text-to-image" else (own_images, texts)
        result.first[language] = {name: 100 * float((each == 1).mean()) for name, each in ranks.items()}
        for index in _chosen(ranks, [of_language.image_ids[image] for image in image_of], queries, differing):
            shown = {}
            for name, (asking, asked) in scores.items():
                best = np.argsort(-(asking[rows[index]] @ asked.T), kind="stable")[:top].tolist()
                marks = [each in right[index] for each in best]
                candidates = of_language.rows[best].tolist() if direction == "text-to-image" else best
                shown[name] = Found(candidates, [names[each] for each in best], marks, int(ranks[name][index]))
            image = int(image_of[index])
            query = of_language.texts[index] if direction == "text-to-image" else of_language.image_ids[image]
            result.queries.append(ComparedQuery(language, query, int(of_language.rows[image]), shown))
    if not result.queries:
        raise InputError("the models do not differ on any query: compare other models, or all queries")
    return result


def _chosen(ranks: Mapping[str, np.ndarray], ids: list[str], count: int, differing: bool) -> list[int]:
    """Selects queries about different images by a hash of the image, and returns their indices."""
    hits = np.stack([(each == 1).astype(int) for each in ranks.values()])
    alike = np.ptp(hits, axis=0) == 0
    first: dict[str, int] = {}
    for index, image_id in enumerate(ids):
        if not (differing and alike[index]):
            first.setdefault(image_id, index)
    order = sorted(first, key=lambda image: hashlib.sha256(image.encode("utf-8", "surrogatepass")).digest())
    return [first[image] for image in order[:count]]

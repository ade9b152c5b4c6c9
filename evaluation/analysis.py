"""Analyses from the papers: languages by SVCCA, images and labels by t-SNE, distances of languages, and the results of
several models for the same queries. For each, one function computes the numbers, and another draws them, in colors
that color-blind readers can distinguish; a version of matplotlib always writes the same file for the same numbers."""

import hashlib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from PIL import ImageOps
from pydantic_core import to_jsonable_python
from transformers import PreTrainedModel, ProcessorMixin

from ..data.batching.views import CaptionIndex, Images, RetrievalSets, images_of
from ..data.corpus.corpus import describe, evenly_spaced, languages_of
from ..inference.embedder import Embedder, ImageLike, batches, evaluation_mode
from ..utils.errors import CorpusError, InputError, ModelKindError, requires
from ..utils.files import atomic_file
from ..utils.languages import normalize_languages
from .ranking import embedding_ranks, percent_within


def as_json(result: Any) -> Any:
    """Converts the numbers of an analysis to JSON values: dataclasses to objects, arrays to lists, NaN to null."""
    return to_jsonable_python(result, inf_nan_mode="null", fallback=lambda array: array.tolist())


# ---- Parallel texts, one in every language for each row of a corpus ----


@dataclass(frozen=True)
class ParallelTexts:
    """Texts with the same meaning: language -> texts [N], which are translations of each other at the same index; the
    `image_id` of each text's row (in a corpus of translations the row's index), and the row in the corpus."""

    ids: list[str]
    texts: Mapping[str, list[str]]
    rows: list[int]


def parallel_texts(
    corpus: datasets.Dataset, languages: str | list[str] | tuple[str, ...], *, limit: int | None = None
) -> ParallelTexts:
    """Returns the first text in each language of every row that has texts in all languages; of several rows with the
    same `image_id`, the first is used. `limit` is the maximum number of rows, which are evenly spaced."""
    tags = normalize_languages(languages)
    index = CaptionIndex(corpus)
    if missing := [tag for tag in tags if tag not in index.languages]:
        raise CorpusError(f"no captions in {', '.join(missing)}; the corpus has {describe(languages_of(corpus))}")
    captions: dict[str, np.ndarray] = {}  # the index of each row's first caption in the language, or -1
    for tag in tags:
        own = index.captions_in(tag)[::-1]  # a row's first caption replaces its others
        captions[tag] = np.full(len(corpus), -1)
        captions[tag][index.rows[own]] = own
    complete = np.flatnonzero(np.all([each >= 0 for each in captions.values()], axis=0))
    _, first = np.unique(index.concepts[complete], return_index=True)
    rows = complete[np.sort(first)]
    if not len(rows):
        counts = ", ".join(f"{(each >= 0).sum()} in {tag}" for tag, each in captions.items())
        raise CorpusError(f"no row has texts in all languages: there are {counts}")
    if limit is not None:
        rows = rows[evenly_spaced(len(rows), limit)]
    ids = corpus.select_columns("image_id")[rows]["image_id"] if "image_id" in corpus.column_names else rows
    return ParallelTexts(
        ids=[str(name) for name in ids],
        texts={tag: index.texts.take(pa.array(captions[tag][rows])).to_pylist() for tag in tags},
        rows=rows.tolist(),
    )


def encode_parallel(embedder: Embedder, parallel: ParallelTexts) -> dict[str, np.ndarray]:
    """Returns the embeddings of parallel texts: language -> float32 [N, d]."""
    return {tag: embedder.encode_text(texts, language=tag) for tag, texts in parallel.texts.items()}


# ---- Similarities of languages by SVCCA, their map, and their tree ----
# After MURAL, arXiv 2109.05125, section 5 and figure 3. SVCCA (Raghu et al. 2017, arXiv 1706.05806) keeps the singular
# vectors with 99 % of the variance of two representations of the same texts, and averages the canonical correlations
# between the subspaces; rotation, translation and scaling change nothing. As in Kudugunta et al. (2019, arXiv
# 1909.02197), the similarities are the weights of a graph, which Laplacian eigenmaps (Belkin & Niyogi 2003) lay out.

VARIANCE = 0.99
_FEWEST = 4  # languages that a two-dimensional map can distinguish


@dataclass(frozen=True)
class LanguageMap:
    """The similarity of a model's embeddings of parallel texts between L languages: `similarities` by SVCCA, from 0 to
    1, [L, L]; their Laplacian eigenmap `coordinates` [L, 2]; the `tree` of average linkage, as
    `scipy.cluster.hierarchy.linkage` returns it, [L - 1, 4], and the `order` of its leaves; and `components`, language
    -> the number of singular vectors that explain `variance`. `chance` is the mean similarity of successive languages
    if the texts of one are shuffled; it grows with the number of components and falls with the number of texts."""

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
    """Returns the SVCCA similarity, from 0 to 1, of two representations of the same texts, [N, d] and [N, e];
    `variance` is the share of the variance to keep in each."""
    axes = _principal_axes({"x": x, "y": y}, variance)
    return _mean_correlation(axes["x"], axes["y"])


def language_map(embeddings: Mapping[str, np.ndarray], *, variance: float = VARIANCE, seed: int = 0) -> LanguageMap:
    """Compares languages by their embeddings of parallel texts, language -> [N, d], from `encode_parallel`."""
    with requires("scipy", "scikit-learn"):
        from scipy.cluster import hierarchy
        from scipy.spatial.distance import squareform
        from sklearn.manifold import SpectralEmbedding

    languages = list(embeddings)
    if len(languages) < _FEWEST:
        raise InputError(f"a map needs at least {_FEWEST} languages, but there are {len(languages)}")
    axes = _principal_axes(embeddings, variance)
    random, given = np.random.default_rng(seed), list(axes.values())
    similarities = np.eye(len(languages))
    for (column, y), (row, x) in combinations(enumerate(given), 2):
        similarities[row, column] = similarities[column, row] = _mean_correlation(x, y)
    shuffled = [
        _mean_correlation(x, y[random.permutation(len(y))]) for x, y in zip(given, [*given[1:], given[0]], strict=True)
    ]
    tree = hierarchy.linkage(squareform(1 - similarities, checks=False), "average", optimal_ordering=True)
    layout = SpectralEmbedding(n_components=2, affinity="precomputed", random_state=seed)
    return LanguageMap(
        languages=languages,
        n_texts=len(given[0]),
        similarities=similarities,
        chance=float(np.mean(shuffled)),
        components={language: each.shape[1] for language, each in axes.items()},
        variance=variance,
        coordinates=layout.fit_transform(similarities),
        tree=tree,
        order=[languages[leaf] for leaf in hierarchy.leaves_list(tree)],
        seed=seed,
    )


def _principal_axes(embeddings: Mapping[str, np.ndarray], variance: float) -> dict[str, np.ndarray]:
    """The left singular vectors with this share of the variance, [N, k] each, unscaled, because canonical correlations
    do not depend on the scale. Raises an error if there are so few texts that some correlations are always 1."""
    if len(counts := {len(each) for each in embeddings.values()}) > 1:
        raise InputError(f"SVCCA compares embeddings of the same texts, but there are {sorted(counts)}")
    axes = {}
    for name, x in embeddings.items():
        vectors, values, _ = np.linalg.svd(x.astype(np.float64) - x.mean(0, dtype=np.float64), full_matrices=False)
        held = np.cumsum(values**2)
        if not held[-1] > np.finfo(np.float32).eps ** 2 * len(x):
            raise InputError(f"{name}: all texts have the same embedding, so there is nothing to compare")
        axes[name] = vectors[:, : int(np.searchsorted(held, variance * held[-1])) + 1]
    needed = 1 + sum(sorted(each.shape[1] for each in axes.values())[-2:])
    if needed > counts.pop():
        raise InputError(f"too few texts: with fewer than {needed}, some correlations are always 1")
    return axes


def _mean_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """The mean canonical correlation between two spaces with orthonormal bases, [N, k] and [N, m]."""
    return float(np.linalg.svd(x.T @ y, compute_uv=False).clip(0, 1).mean())


# ---- Images and the labels of their classes, by t-SNE (MLA, arXiv 2206.11091, appendix, figure 2) ----
# Distances in a t-SNE map are unreliable, so the accuracy is computed from the embeddings.

_PERPLEXITY = 30.0  # lower if there are few points
_COMPONENTS = 50  # dimensions before t-SNE, as in van der Maaten & Hinton (2008)


@dataclass(frozen=True)
class LabelMap:
    """Images and the labels of their classes in the plane: the class of each image [N], and coordinates of images [N,
    2] and labels [L, C, 2], NaN if a language has no label for a class. `accuracy` is language -> the percentage of
    images whose nearest label is the label of their class."""

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
    """Computes a map of images, embedded as [N, d], and the labels of their classes, language -> class index ->
    embedding [d]. Embeddings have unit length; `targets` are class indices [N]."""
    with requires("scikit-learn"):
        from sklearn.decomposition import PCA
        from sklearn.manifold import TSNE

    places = [(language, index) for language, named in labels.items() for index in named]
    if not places or len(images) + len(places) < 5:
        raise InputError("a map of images and labels needs at least one label, and at least five images and labels")
    points = np.concatenate([images, np.stack([labels[language][index] for language, index in places])])
    if min(points.shape) > _COMPONENTS:
        points = PCA(_COMPONENTS, random_state=seed).fit_transform(points)
    perplexity = min(_PERPLEXITY, (len(points) - 1) / 3)
    coordinates = TSNE(perplexity=perplexity, init="pca", random_state=seed, n_jobs=1).fit_transform(points)
    languages, right = list(labels), np.asarray(targets)
    of_labels = np.full((len(languages), len(classes), 2), np.nan)
    for (language, index), place in zip(places, coordinates[len(images) :], strict=True):
        of_labels[languages.index(language), index] = place
    accuracy = {}
    for language, named in labels.items():
        nearest = np.array(list(named))[(images @ np.stack(list(named.values())).T).argmax(1)]
        accuracy[language] = 100 * float((nearest == right).mean())
    return LabelMap(seed, list(classes), languages, right.tolist(), coordinates[: len(images)], of_labels, accuracy)


# ---- Distance ratios: how training moves languages closer to each other (RC3, arXiv 2305.07927, figure 5) ----
# The anchor is an image with its English text. The ratio is the Euclidean distance between it and the same image with
# a text in another language, in a model trained with a term of the loss (in the paper, KL(P_vtr || P_tr)), divided by
# their distance in a model trained without it: below 1, training has brought the language closer. A representation of
# RC3 is its VtR, the state at [CLS] of a text with its image; that of a dual encoder is the embedding of the text.


@dataclass(frozen=True)
class DistanceRatios:
    """The distances of L languages to an anchor, for N images: in the model and in the baseline [L, N], and their
    ratios, NaN if the baseline's distance is 0. `median` is language -> the median of its ratios, and `nearer`
    language -> the percentage of images with a ratio below 1."""

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
    """Compares the distances to an anchor in a model and in a baseline, which was trained without the term: language
    -> [N, d], parallel captions with their images (`joint_representations`) or without (`encode_parallel`)."""
    languages = [language for language in representations if language != anchor]
    if not languages:
        raise InputError(f"there is no language other than the anchor {anchor}")
    own, base = (
        np.stack([np.linalg.norm(given[language] - given[anchor], axis=1) for language in languages])
        for given in (representations, baseline)
    )
    ratios = np.divide(own, base, out=np.full_like(own, np.nan), where=base > 0)
    of_language = {language: row[np.isfinite(row)] for language, row in zip(languages, ratios, strict=True)}
    if alike := [language for language, row in of_language.items() if not len(row)]:
        raise InputError(f"the baseline does not distinguish {alike[0]} from {anchor}: all distances are 0")
    return DistanceRatios(
        anchor=anchor,
        languages=languages,
        ids=list(ids),
        distances=own,
        baseline_distances=base,
        ratios=ratios,
        median={language: float(np.median(row)) for language, row in of_language.items()},
        nearer={language: 100 * float(np.mean(row < 1)) for language, row in of_language.items()},
    )


def joint_representations(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    texts: Mapping[str, Sequence[str]],
    images: Sequence[ImageLike],
    *,
    batch_size: int = 64,
) -> dict[str, np.ndarray]:
    """Returns the joint representations (VtR) of an `Rc3Model` that reads patches, language -> float32 [N, d], for
    images with their texts, language -> [N]."""
    if {len(each) for each in texts.values()} != {len(images)}:
        raise InputError(f"there are {len(images)} images, but not every language has as many texts")
    found: dict[str, list[np.ndarray]] = {language: [] for language in texts}
    with evaluation_mode(model):
        for rows in batches(range(len(images)), batch_size, "Encoding texts with images"):
            batch = [images[row] for row in rows]
            for language, given in texts.items():
                inputs = processor(
                    text=[given[row] for row in rows], language=language, images=batch, return_tensors="pt"
                )
                states = model.encode(**inputs.to(model.device, model.dtype)).pooler_output  # [n, d]
                found[language].append(states.float().cpu().numpy())
    return {language: np.concatenate(parts) for language, parts in found.items()}


# ---- Results of several models for the same queries (MURAL, figures 4, 5, 9 and 10; MLA, figure 1) ----


@dataclass(frozen=True)
class Found:
    """A model's results for a query: the best images (rows of the corpus), best first, with `image_id` and
    correctness, and the rank of the best correct one, from 1; ties count against the model."""

    candidates: list[int]
    names: list[str]
    right: list[bool]
    rank: int


@dataclass(frozen=True)
class ComparedQuery:
    """A text as a query, its language, the row of its image in the corpus, and the results of each model by name."""

    language: str
    query: str
    row: int
    found: dict[str, Found]


@dataclass(frozen=True)
class SideBySide:
    """Several models' results for selected queries; `first`: language -> model -> R@1 in percent over all queries."""

    queries: list[ComparedQuery]
    first: dict[str, dict[str, float]]


def side_by_side(
    embedders: Mapping[str, Embedder],
    corpus: datasets.Dataset,
    languages: str | list[str] | tuple[str, ...],
    *,
    queries: int = 3,
    top: int = 5,
) -> SideBySide:
    """Searches the images of a caption corpus with several models, and returns the `top` results of each for some
    queries in each language, which a hash of their images selects independently of the results."""
    sets, result = RetrievalSets(corpus), SideBySide([], {})
    images = {name: embedder.encode_image(images_of(corpus)) for name, embedder in embedders.items()}
    for language in normalize_languages(languages):
        asked = sets.of(language)
        texts = {name: embedder.encode_text(asked.texts, language=language) for name, embedder in embedders.items()}
        ranks = {
            name: embedding_ranks(images[name], texts[name], asked.text_to_images).text_to_image for name in embedders
        }
        result.first[language] = {name: percent_within(each, 1) for name, each in ranks.items()}
        first_query: dict[str, int] = {}
        for query, right in enumerate(asked.text_to_images):
            first_query.setdefault(asked.image_ids[right[0]], query)
        order = sorted(first_query, key=lambda name: hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest())
        for query in (first_query[image_id] for image_id in order[:queries]):
            right, found = asked.text_to_images[query], {}
            for name in embedders:
                best = np.argsort(-(texts[name][query] @ images[name].T), kind="stable")[:top].tolist()
                names, marks = [asked.image_ids[each] for each in best], [each in right for each in best]
                found[name] = Found(best, names, marks, int(ranks[name][query]))
            result.queries.append(ComparedQuery(language, asked.texts[query], right[0], found))
    return result


# ---- Figures ----

# Okabe & Ito (2008), without black. Each color also has a marker, so gray prints lose nothing.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#7570B3")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
INK, PALE = "#222222", "#767676"
RIGHT, WRONG = "#009E73", "#d9d9d9"

_IMAGE_SIDE = 160  # maximum size of an image in a figure, in pixels
_MANY_POINTS = 5_000  # with more points, an SVG contains them as an image
_SETTINGS = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],  # matplotlib includes the first; browsers have another
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": PALE,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "figure.constrained_layout.use": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "babelens",
}


@contextmanager
def _style() -> Iterator[Any]:
    """The common style; gives the class of figures that use neither a window nor the state of pyplot."""
    with requires("matplotlib"):
        import matplotlib
        from matplotlib.figure import Figure
    with matplotlib.rc_context(_SETTINGS):
        yield Figure


def save_figure(figure: Any, file: str | Path) -> None:
    """Writes a figure as SVG or PNG, depending on the file extension."""
    ending = Path(file).suffix.lower()
    if ending not in (".svg", ".png"):
        raise InputError(f"{file}: figures can be written as .svg or .png")
    without_date = {"Date": None} if ending == ".svg" else {"Software": None}
    with _style(), atomic_file(file) as path:
        figure.savefig(path, format=ending[1:], dpi=200, metadata=without_date, facecolor="white")


def draw_language_map(languages: LanguageMap) -> Any:
    """Draws the tree of languages, their similarities in the order of its leaves, and the Laplacian eigenmap."""
    from scipy.cluster.hierarchy import dendrogram

    with _style() as figure_class:
        side = min(6.0, max(2.8, 0.17 * len(languages.languages)))
        figure = figure_class((side * 2.4 + 0.9, side + 0.8))
        heat, layout = figure.subplots(1, 2, width_ratios=(1.3, 0.95))
        tree = heat.inset_axes((-0.36, 0, 0.28, 1))  # next to the rows, however the layout scales them
        style = {"color_threshold": 0, "above_threshold_color": INK}
        dendrogram(languages.tree, ax=tree, orientation="left", no_labels=True, **style)
        for lines in tree.collections:
            lines.set_linewidth(0.7)
        order = [languages.languages.index(tag) for tag in languages.order]
        tree.set_ylim(10 * len(order), 0)
        tree.set_xlabel("1 − SVCCA")
        tree.tick_params(labelsize=6)
        tree.spines["left"].set_visible(False)
        similarities = languages.similarities[np.ix_(order, order)]
        np.fill_diagonal(similarities, np.nan)  # a language and itself
        mesh = heat.pcolormesh(np.ma.masked_invalid(similarities), edgecolors="white", linewidth=0.4, cmap="viridis")
        size = min(7.0, 7.0 * 34 / len(order))
        heat.set_xticks(np.arange(len(order)) + 0.5, languages.order, rotation=90, fontsize=size)
        heat.set_yticks(np.arange(len(order)) + 0.5, languages.order, fontsize=size)
        heat.tick_params(length=0)
        heat.invert_yaxis()
        heat.spines[:].set_visible(False)
        heat.set_aspect("equal")
        heat.set_title(f"SVCCA similarity, {languages.n_texts:,} texts")
        bar = figure.colorbar(mesh, ax=heat, shrink=0.6, pad=0.02)
        bar.outline.set_visible(False)
        bar.set_label(f"shuffled texts: {languages.chance:.2f}", fontsize=7)
        points = np.asarray(languages.coordinates)
        layout.scatter(points[:, 0], points[:, 1], s=14, c=COLORS[0], linewidths=0)
        for tag, point in zip(languages.languages, points, strict=True):
            layout.annotate(tag, point, xytext=(3, 3), textcoords="offset points", fontsize=7, color=INK)
        layout.set_title("Laplacian eigenmap")
        layout.margins(0.1)
        _frame_only(layout)
    return figure


def draw_label_map(found: LabelMap) -> Any:
    """Draws images as points and labels as crosses, in the color of the class; each label shows its language."""
    with _style() as figure_class:
        figure = figure_class((5.4, 4.9))
        axes = figure.subplots()
        targets, images, labels = np.asarray(found.targets), np.asarray(found.images), np.asarray(found.labels)
        size = float(np.clip(6_000 / len(images), 2, 14))
        many = {"linewidths": 0, "rasterized": len(images) > _MANY_POINTS}
        for index, name in enumerate(found.classes):
            color, marker = COLORS[index % len(COLORS)], MARKERS[index // len(COLORS) % len(MARKERS)]
            own = images[targets == index]
            axes.scatter(own[:, 0], own[:, 1], s=size, c=color, marker=marker, alpha=0.5, label=name, **many)
            axes.scatter(labels[:, index, 0], labels[:, index, 1], s=42, c=color, marker="x", linewidths=1.6, zorder=3)
        text = {"xytext": (3, 3), "textcoords": "offset points", "fontsize": 5.5, "color": INK, "zorder": 4}
        for language, row in zip(found.languages, labels, strict=True):
            for place in row[np.isfinite(row[:, 0])]:
                axes.annotate(language, place, **text)
        if len(found.classes) <= 24:
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=5, handletextpad=0, columnspacing=0.7)
        _frame_only(axes)
        mean = sum(found.accuracy.values()) / len(found.accuracy)
        title = f"t-SNE of {len(images):,} images (points) and labels (crosses). For {mean:.0f} % of the "
        figure.suptitle(f"{title}images, the nearest label is the label of their class", fontsize=7.5, color=PALE)
    return figure


def draw_distance_ratios(ratios: DistanceRatios) -> Any:
    """Draws the ratio of every image as a point, the median of each language, and the middle half of its images. The
    points of a language are spread across its line in the order of the images, not at random."""
    order = sorted(range(len(ratios.languages)), key=lambda index: ratios.median[ratios.languages[index]])
    with _style() as figure_class:
        figure = figure_class((4.6, 0.9 + 0.3 * len(order)))
        axes = figure.subplots()
        axes.axvline(1, color=PALE, linewidth=0.8, linestyle="--")
        many = ratios.ratios.size > _MANY_POINTS
        for line, index in enumerate(order):
            values = ratios.ratios[index]
            values = values[np.isfinite(values)]
            across = line + 0.6 * ((np.arange(len(values)) * 0.618034) % 1 - 0.5)
            axes.scatter(values, across, s=5, c=COLORS[5], alpha=0.6, linewidths=0, rasterized=many, zorder=1)
            low, middle, high = np.percentile(values, (25, 50, 75))
            axes.plot((low, high), (line, line), color=INK, linewidth=1.2, zorder=2)
            axes.scatter([middle], [line], s=26, c=COLORS[1], marker="D", edgecolors="white", linewidths=0.5, zorder=3)
        names = [ratios.languages[index] for index in order]
        axes.set_yticks(range(len(order)), [f"{name}  {ratios.nearer[name]:.0f} %" for name in names])
        axes.set_ylim(len(order) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        finite = ratios.ratios[np.isfinite(ratios.ratios)]
        if finite.min() > 0 and finite.max() / finite.min() > 4:
            axes.set_xscale("log")
            marks = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
            ticks = [mark for mark in marks if finite.min() / 2 < mark < finite.max() * 2]
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
        axes.set_xlabel(f"distance to the anchor ({ratios.anchor}) / distance by the baseline")
        axes.set_title("languages, with the share of images below 1", fontsize=8)
    return figure


def draw_side_by_side(compared: SideBySide, corpus: datasets.Dataset) -> Any:
    """Draws each query with a line for each model: the images that it finds, the correct ones in green."""
    images = images_of(corpus)
    if not isinstance(images, Images):
        raise ModelKindError("the figure needs images, but the corpus has features instead")
    lines = [(query, name, found) for query in compared.queries for name, found in query.found.items()]
    columns = max(len(found.names) for _, _, found in lines)
    with _style() as figure_class:
        figure = figure_class((1.5 + 0.95 * columns, 1.15 * len(lines)))
        grid = figure.subplots(len(lines), 1 + columns, squeeze=False, width_ratios=[1.5, *[1] * columns])
        for (heading, *places), (query, name, found) in zip(grid, lines, strict=True):
            for axes in (heading, *places):
                axes.set_axis_off()
            if name == next(iter(query.found)):
                shown = textwrap.fill(textwrap.shorten(query.query, 60, placeholder="…"), 20)
                heading.text(0, 1, f"{shown}\n[{query.language}]", va="top", fontweight="bold")
            heading.text(0, 0, f"{name}: rank {found.rank}", va="bottom", color=PALE, fontsize=6.5)
            for axes, row, is_right in zip(places, found.candidates, found.right, strict=False):
                axes.set_axis_on()
                axes.imshow(np.asarray(ImageOps.contain(images[row], (_IMAGE_SIDE, _IMAGE_SIDE))))
                _frame_only(axes)
                axes.spines[:].set(color=RIGHT if is_right else WRONG, linewidth=2.5)
    return figure


def _frame_only(axes: Any) -> None:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(True)

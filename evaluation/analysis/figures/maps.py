"""Figures of maps: languages by their similarity, captions in the plane, and images with their labels."""

from typing import Any

import numpy as np

from ....data.corpus.sampling import evenly_spread
from ..embedding_layout import EmbeddingMap, LabelMap
from ..numbers import analysis_extra
from ..parallel import LanguageMap
from .style import (
    COLORS,
    FAINT,
    INK,
    MARKERS,
    PALE,
    SEQUENTIAL,
    family_of,
    family_styles,
    label_points,
    matrix,
    new_figure,
    styled,
)

# Points beyond which an SVG holds them as an image, instead of a mark for each.
_MANY_POINTS = 5_000
_IMAGES_SHOWN = 8
_METHODS = {"tsne": "t-SNE", "umap": "UMAP"}


@styled
def draw_language_map(languages: LanguageMap) -> Any:
    """Draws the tree of languages beside their similarities in the order of its leaves, and the Laplacian eigenmap,
    colored by family."""
    with analysis_extra():
        from scipy.cluster.hierarchy import dendrogram
    side = min(6.0, max(2.8, 0.17 * len(languages.languages)))
    figure = new_figure(side * 2.4 + 0.9, side + 0.8)
    heat, layout = figure.subplots(1, 2, width_ratios=(1.3, 0.95))
    tree = heat.inset_axes((-0.36, 0, 0.28, 1))  # beside the rows, however the layout scales them
    order = [languages.languages.index(tag) for tag in languages.order]
    leaves = dendrogram(
        languages.tree, ax=tree, orientation="left", no_labels=True, color_threshold=0, above_threshold_color=INK
    )
    assert leaves["leaves"] == order
    for lines in tree.collections:
        lines.set_linewidth(0.7)
    tree.set_ylim(10 * len(order), 0)
    tree.set_xlabel("1 − SVCCA")
    tree.tick_params(labelsize=6)
    tree.spines["left"].set_visible(False)
    similarities = languages.similarities[np.ix_(order, order)]
    np.fill_diagonal(similarities, np.nan)  # a language and itself
    mesh = matrix(heat, similarities, languages.order, languages.order, cmap=SEQUENTIAL)
    size = min(7.0, 7.0 * 34 / len(order))
    heat.tick_params(axis="x", rotation=90, labelsize=size)
    heat.tick_params(axis="y", labelsize=size)
    heat.set_aspect("equal")
    heat.set_title(f"SVCCA similarity, {languages.n_texts:,} texts")
    bar = figure.colorbar(mesh, ax=heat, shrink=0.6, pad=0.02)
    bar.outline.set_visible(False)
    bar.set_label(f"shuffled texts: {languages.chance:.2f}", fontsize=7)
    _draw_eigenmap(layout, languages)
    return figure


def _draw_eigenmap(axes: Any, languages: LanguageMap) -> None:
    points = np.asarray(languages.coordinates)
    families = [family_of(tag) for tag in languages.languages]
    for family, (color, marker) in family_styles(languages.languages).items():
        own = points[[each == family for each in families]]
        axes.scatter(own[:, 0], own[:, 1], s=22, c=color, marker=marker, label=family, linewidths=0, zorder=2)
    axes.set_title("Laplacian eigenmap")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.margins(0.1)
    for spine in axes.spines.values():
        spine.set_visible(True)
    columns = 2 if len(points) < 20 else 3
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=columns, handletextpad=0.1, columnspacing=1)
    label_points(axes, points, languages.languages)


@styled
def draw_embedding_map(captions: EmbeddingMap) -> Any:
    """Draws the map of captions twice: colored by language, and with the captions of some images colored."""
    figure = new_figure(7.4, 4.1)
    by_language, by_image = figure.subplots(1, 2)
    points = np.asarray(captions.coordinates)  # [L, N, 2]
    n_languages, n_images = points.shape[:2]
    options = {"linewidths": 0, "rasterized": n_languages * n_images > _MANY_POINTS}
    size = float(np.clip(9_000 / (n_languages * n_images), 2, 14))
    styles = [(COLORS[i % len(COLORS)], MARKERS[i // len(COLORS) % len(MARKERS)]) for i in range(n_languages)]
    for tag, own, (color, marker) in zip(captions.languages, points, styles, strict=True):
        by_language.scatter(own[:, 0], own[:, 1], s=size, c=color, marker=marker, alpha=0.75, label=tag, **options)
    by_language.set_title("by language")
    by_language.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0), ncols=8, handletextpad=0, columnspacing=0.7, markerscale=1.6
    )
    everything = points.reshape(-1, 2)
    by_image.scatter(everything[:, 0], everything[:, 1], s=size, c=FAINT, **options)
    for index, image in enumerate(evenly_spread(n_images, _IMAGES_SHOWN)):
        own, color = points[:, image], COLORS[index]
        middle = np.median(own, axis=0)
        for end in own:
            by_image.plot(*np.stack([middle, end], axis=1), color=color, linewidth=0.4, alpha=0.5)
        name = captions.ids[image] if len(captions.ids[image]) < 12 else f"{captions.ids[image][:10]}…"
        by_image.scatter(
            own[:, 0], own[:, 1], s=12, c=color, marker=MARKERS[index], linewidths=0, label=name, zorder=3
        )
    by_image.set_title(f"by image: {min(n_images, _IMAGES_SHOWN)} of {n_images:,}")
    by_image.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=4, handletextpad=0, columnspacing=0.7)
    for axes in (by_language, by_image):
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_visible(True)
    figure.suptitle(
        f"{_METHODS[captions.method]} of captions. Of a caption's nearest {n_languages - 1}, "
        f"{captions.same_image:.0f} % are of its image (chance {captions.chance_image:.1f} %), "
        f"{captions.same_language:.0f} % in its language (chance {captions.chance_language:.0f} %)",
        fontsize=7.5,
        color=PALE,
    )
    return figure


@styled
def draw_label_map(found: LabelMap) -> Any:
    """Draws images as points and labels as crosses, both in the color of the class; each label has its language."""
    figure = new_figure(5.4, 4.9)
    axes = figure.subplots()
    targets, images, labels = np.asarray(found.targets), np.asarray(found.images), np.asarray(found.labels)
    size = float(np.clip(6_000 / len(images), 2, 14))
    many = {"linewidths": 0, "rasterized": len(images) > _MANY_POINTS}
    for index, name in enumerate(found.classes):
        color = COLORS[index % len(COLORS)]
        marker = MARKERS[index // len(COLORS) % len(MARKERS)]
        own = images[targets == index]
        axes.scatter(own[:, 0], own[:, 1], s=size, c=color, marker=marker, alpha=0.5, label=name, **many)
        axes.scatter(labels[:, index, 0], labels[:, index, 1], s=42, c=color, marker="x", linewidths=1.6, zorder=3)
    for language, row in zip(found.languages, labels, strict=True):
        for place in row[np.isfinite(row[:, 0])]:
            axes.annotate(
                language, place, xytext=(3, 3), textcoords="offset points", fontsize=5.5, color=INK, zorder=4
            )
    if len(found.classes) <= 24:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=5, handletextpad=0, columnspacing=0.7)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(True)
    mean = sum(found.accuracy.values()) / len(found.accuracy)
    figure.suptitle(
        f"{_METHODS[found.method]} of {len(images):,} images (points) and labels (crosses). Of {mean:.0f} % of the "
        "images, the nearest label is that of their class",
        fontsize=7.5,
        color=PALE,
    )
    return figure

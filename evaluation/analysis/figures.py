"""Figures of the analyses, as SVG or PNG, in colors that color-blind readers can distinguish. The same numbers give a
byte-identical file with the same version of matplotlib."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from PIL import ImageOps

from ...data.batching.views import Images, images_of
from ...utils.defaults import FIGURES
from ...utils.errors import InputError, ModelKindError
from ...utils.files import atomic_file
from .numbers import DistanceRatios, LabelMap, LanguageMap, SideBySide, analysis_extra

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
    with analysis_extra():
        import matplotlib
        from matplotlib.figure import Figure
    with matplotlib.rc_context(_SETTINGS):
        yield Figure


def save_figure(figure: Any, file: str | Path) -> None:
    """Writes a figure as SVG or PNG, depending on the file extension."""
    ending = Path(file).suffix.lower()
    if ending not in FIGURES:
        raise InputError(f"{file}: figures can be written as {' or '.join(FIGURES)}")
    without_date = {"Date": None} if ending == ".svg" else {"Software": None}
    with _style(), atomic_file(file) as path:
        figure.savefig(path, format=ending[1:], dpi=200, metadata=without_date, facecolor="white")


def draw_language_map(languages: LanguageMap) -> Any:
    """Draws the tree of languages, their similarities in the order of its leaves, and the Laplacian eigenmap."""
    with analysis_extra():
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
    """Draws each query with a line for each model: the images or texts that it finds, the correct ones in green."""
    images = images_of(corpus)
    if not isinstance(images, Images):
        raise ModelKindError("the figure needs images, but the corpus has features instead")
    of_texts = compared.direction == "image-to-text"
    lines = [(query, name, found) for query in compared.queries for name, found in query.found.items()]
    columns = 1 if of_texts else max(len(found.names) for _, _, found in lines)
    with _style() as figure_class:
        figure = figure_class((7.0 if of_texts else 1.5 + 0.95 * columns, 1.15 * len(lines)))
        widths = [1.5, *[5 if of_texts else 1] * columns]
        grid = figure.subplots(len(lines), 1 + columns, squeeze=False, width_ratios=widths)
        for (heading, *places), (query, name, found) in zip(grid, lines, strict=True):
            for axes in (heading, *places):
                axes.set_axis_off()
            is_first = name == next(iter(query.found))
            if of_texts:
                if is_first:
                    _draw_image(heading, images[query.row], INK)
                places[0].set_title(f"{name}, {query.language}: rank {found.rank}")
                for line, (text, is_right) in enumerate(zip(found.names, found.right, strict=True)):
                    shown, color = textwrap.shorten(text, 80, placeholder="…"), RIGHT if is_right else INK
                    places[0].text(0, 1 - (line + 0.5) / len(found.names), shown, color=color, va="center")
                continue
            if is_first:
                shown = textwrap.fill(textwrap.shorten(query.query, 60, placeholder="…"), 20)
                heading.text(0, 1, f"{shown}\n[{query.language}]", va="top", fontweight="bold")
            heading.text(0, 0, f"{name}: rank {found.rank}", va="bottom", color=PALE, fontsize=6.5)
            for axes, row, is_right in zip(places, found.candidates, found.right, strict=False):
                _draw_image(axes, images[row], RIGHT if is_right else WRONG)
    return figure


def _draw_image(axes: Any, image: Any, frame: str) -> None:
    axes.set_axis_on()
    axes.imshow(np.asarray(ImageOps.contain(image.convert("RGB"), (_IMAGE_SIDE, _IMAGE_SIDE))))
    _frame_only(axes)
    axes.spines[:].set(color=frame, linewidth=2.5)


def _frame_only(axes: Any) -> None:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(True)

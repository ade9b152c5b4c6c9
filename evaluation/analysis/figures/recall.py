"""Figures of recall: what languages find together and alone, what was forgotten, and what training texts do;
and of the distances of captions to their images.
"""

from typing import Any

import numpy as np

from ...comparison import SIGNIFICANT
from ..data_recall import DataRecall, Forgetting, LanguageAgreement
from ..distances import DistanceRatios
from .style import COLORS, DIVERGING, FAINT, INK, MARKERS, PALE, SEQUENTIAL, label_points, matrix, new_figure, styled

METRICS = {
    **{f"t2i_r{k}": f"text-to-image R@{k}" for k in (1, 5, 10)},
    **{f"i2t_r{k}": f"image-to-text R@{k}" for k in (1, 5, 10)},
    "mean_recall": "mean recall",
}


@styled
def draw_agreement(agreement: LanguageAgreement) -> Any:
    """Draws how many languages find an image, what each finds with others and alone, and what two languages share."""
    n_languages = len(agreement.languages)
    side = min(6.5, max(2.3, 0.19 * n_languages))
    figure = new_figure(5 + side, side + 0.7)
    counts, bars, shared = figure.subplots(1, 3, width_ratios=(2.4, 2.2, side))
    counts.bar(range(n_languages + 1), agreement.by_count, color=COLORS[0], width=0.8, label="found")
    counts.plot(
        range(n_languages + 1), agreement.expected_by_count, color=COLORS[1], marker="o", markersize=2.5,
        linewidth=1, label="if languages were independent",
    )  # fmt: skip
    counts.set_title(f"{agreement.n_images:,} images")
    counts.set_xlabel(f"languages that find the image (R@{agreement.k})")
    counts.set_ylabel("images")
    counts.xaxis.get_major_locator().set_params(integer=True)
    counts.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13))

    order = sorted(agreement.languages, key=lambda tag: -agreement.found[tag])
    rows = np.arange(n_languages)
    found = np.array([agreement.found[tag] for tag in order])
    alone = np.array([100 * len(agreement.found_alone[tag]) / agreement.n_images for tag in order])
    bars.barh(rows, found, color=FAINT, height=0.75)
    bars.barh(rows, alone, color=COLORS[1], height=0.75)
    for row, tag in enumerate(order):
        if agreement.found_alone[tag]:
            bars.text(
                found[row] + 1, row, f"{len(agreement.found_alone[tag])}", va="center", fontsize=6, color=COLORS[1]
            )
    bars.set_yticks(rows, order)
    bars.tick_params(axis="y", length=0, labelsize=min(7.0, 7.0 * 32 / n_languages))
    bars.set_ylim(n_languages - 0.4, -0.6)
    bars.set_xlabel("% of images found")
    bars.set_title("found, and found alone")

    index = [agreement.languages.index(tag) for tag in order]
    values = agreement.shared[np.ix_(index, index)]
    np.fill_diagonal(values, np.nan)  # a language and itself
    mesh = matrix(shared, values, order, order, cmap=SEQUENTIAL, vmin=0, vmax=100)
    size = min(7.0, 7.0 * 32 / n_languages)
    shared.tick_params(axis="x", rotation=90, labelsize=size)
    shared.tick_params(axis="y", labelsize=size)
    shared.set_aspect("equal")
    shared.set_title("% of the row's images that the column finds")
    figure.colorbar(mesh, ax=shared, shrink=0.6, pad=0.02).outline.set_visible(False)
    return figure


@styled
def draw_forgetting(forgotten: Forgetting) -> Any:
    """Draws two matrices: the recall of each language by each model, and the difference to the first model."""
    n_languages, n_models = forgotten.scores.shape
    longest = max(len(name) for name in forgotten.models)
    figure = new_figure(1.4 + 0.75 * (2 * n_models - 1), max(2.0, 0.18 * n_languages + 0.9 + 0.04 * longest))
    scores, changes = figure.subplots(1, 2, width_ratios=(n_models, n_models - 1), sharey=True)
    texts = [[f"{value:.1f}" for value in row] for row in forgotten.scores]
    colors: dict[str, Any] = {"cmap": SEQUENTIAL, "vmin": 0}
    matrix(scores, forgotten.scores, forgotten.languages, forgotten.models, texts=texts, **colors)
    scores.set_title(f"{METRICS.get(forgotten.metric, forgotten.metric)}, %")
    stars = [[test.stars if test else "" for test in row] for row in forgotten.tests]
    texts = [
        [f"{value:+.1f}{mark}".replace("-", "−") for value, mark in zip(values, marks, strict=True)]
        for values, marks in zip(forgotten.differences, stars, strict=True)
    ]
    most = max(1e-9, float(np.abs(forgotten.differences).max()))
    colors = {"cmap": DIVERGING, "vmin": -most, "vmax": most}
    matrix(changes, forgotten.differences, forgotten.languages, forgotten.models[1:], texts=texts, **colors)
    scores.set_ylim(n_languages, 0)  # each matrix has turned the shared axis
    changes.set_title("difference")
    for axes in (scores, changes):
        axes.tick_params(axis="x", rotation=30 if longest > 6 else 0, labelsize=7)
        axes.tick_params(axis="y", labelsize=7)
    if any(test for row in forgotten.tests for test in row):
        marks = ", ".join(f"{mark} p < {bound}" for bound, mark in sorted(SIGNIFICANT.items(), reverse=True))
        figure.supxlabel(f"to {forgotten.models[0]}, paired bootstrap:\n{marks}", fontsize=6.5, color=PALE)
    return figure


@styled
def draw_data_recall(data: DataRecall) -> Any:
    """Draws recall against the number of training texts, with a mark for each language; languages without training
    texts stand on the left of the logarithmic axis."""
    figure = new_figure(4.4, 3.3)
    axes = figure.subplots()
    texts = np.add(data.captions, data.translations)
    kinds = {
        "captioned images": np.array(data.captions) > 0,
        "translations only": (np.array(data.captions) == 0) & (np.array(data.translations) > 0),
        "no training text": texts == 0,
    }
    trained = texts[texts > 0]
    none_at = float(trained.min()) / 3 if len(trained) else 0.5
    points = np.stack([np.where(texts > 0, texts, none_at), np.array(data.recalls)], axis=1).astype(float)
    for (kind, chosen), color, marker in zip(kinds.items(), COLORS, MARKERS, strict=False):
        if chosen.any():
            axes.scatter(*points[chosen].T, s=22, c=color, marker=marker, linewidths=0, label=kind, zorder=2)
    axes.set_xscale("log")
    axes.margins(0.12)
    if (texts == 0).any() and len(trained):
        axes.axvline(none_at * 1.7, color=FAINT, linewidth=0.8)
    axes.set_ylim(bottom=0)
    _ticks(axes, trained, none_at if (texts == 0).any() else None)
    axes.set_xlabel("training texts")
    axes.set_ylabel(f"{METRICS.get(data.metric, data.metric)}, %")
    axes.set_title(_correlations(data), fontsize=7.5, fontweight="normal", color=PALE)
    axes.legend(loc="upper left")
    label_points(axes, points, data.languages)
    return figure


def _ticks(axes: Any, trained: np.ndarray, none_at: float | None) -> None:
    """Ticks at 1, 2 and 5 times powers of ten in the range of the data, and one for no texts."""
    low, high = (trained.min(), trained.max()) if len(trained) else (1, 1)
    steps = [digit * 10.0**power for power in range(12) for digit in (1, 2, 5)]
    shown = [step for step in steps if low / 2 <= step <= high * 2]
    ticks = ([] if none_at is None else [none_at]) + [
        step for step in shown if none_at is None or step > 1.7 * none_at
    ]
    names = [] if none_at is None else ["none"]
    axes.set_xticks(ticks, names + [f"{step:,.0f}" for step in ticks[len(names) :]])
    axes.minorticks_off()


def _correlations(data: DataRecall) -> str:
    parts = []
    for name, value, p in (
        ("all languages", data.correlation, data.p),
        ("trained ones", data.trained_correlation, data.trained_p),
    ):
        if value is not None and p is not None:
            parts.append(f"{name}: ρ = {value:.2f}, p {'< .001' if p < 0.001 else f'= {p:.3f}'}")
    return "Spearman's rank correlation\n" + "; ".join(parts) if parts else "all languages have as many texts"


# ---- Distance ratios ----
# For each language its images on an axis on which the baseline is at 1.


_MANY_POINTS = 5_000


@styled
def draw_distance_ratios(ratios: DistanceRatios) -> Any:
    """Draws the ratio of every image as a point, the median of each language, and the middle half of its images.

    Points are spread across the line of their language by the order of the images, not at random.
    """
    order = sorted(range(len(ratios.languages)), key=lambda index: ratios.median[ratios.languages[index]])
    figure = new_figure(4.6, 0.9 + 0.3 * len(order))
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
        ticks = [tick for tick in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if finite.min() / 2 < tick < finite.max() * 2]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    axes.set_xlabel(f"distance to the anchor ({ratios.anchor}) / distance by the baseline")
    axes.set_title("languages, with the share of images below 1", fontsize=8)
    return figure

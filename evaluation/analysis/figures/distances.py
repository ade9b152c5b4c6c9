"""The figure of distance ratios: for each language its images on an axis on which the baseline is at 1."""

from typing import Any

import numpy as np

from ..distances import DistanceRatios
from .style import COLORS, INK, PALE, new_figure, styled

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

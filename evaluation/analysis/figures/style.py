"""The style of all figures: colors that color-blind readers can tell apart, sizes of a column of a paper, and files
that depend on nothing but the numbers."""

import functools
import json
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ....configuration.defaults import FIGURES
from ....configuration.errors import InputError
from ....configuration.files import atomic_file
from ..numbers import analysis_extra

# Okabe & Ito (2008), without black; a marker beside each color, so that printing in gray loses nothing.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#7570B3")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
INK, PALE, FAINT = "#222222", "#767676", "#d9d9d9"
SEQUENTIAL, DIVERGING = "viridis", "PuOr"

_DOTS_PER_INCH = 200
_SETTINGS = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],  # the first comes with matplotlib; a browser has another
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


def styled(draw: Callable[..., Any]) -> Callable[..., Any]:
    """A function that draws a figure, in the style of all figures."""

    @functools.wraps(draw)
    def draw_in_style(*args: Any, **kwargs: Any) -> Any:
        with analysis_extra():
            import matplotlib
        with matplotlib.rc_context(_SETTINGS):
            return draw(*args, **kwargs)

    return draw_in_style


def new_figure(width: float, height: float) -> Any:
    """An empty figure; width and height are in inches. It belongs to no window and no state of pyplot."""
    with analysis_extra():
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height))


def save_figure(figure: Any, file: str | Path) -> None:
    """Writes a figure as SVG or PNG, by the ending of the file.

    Raises:
        InputError: for another ending.
        SaveError: when the file cannot be written.
    """
    ending = Path(file).suffix.lower()
    if ending not in FIGURES:
        raise InputError(f"{file}: a figure is written as {' or '.join(FIGURES)}")
    with analysis_extra():
        import matplotlib
    without_date = {"Date": None} if ending == ".svg" else {"Software": None}
    with matplotlib.rc_context(_SETTINGS), atomic_file(file) as path:
        figure.savefig(path, format=ending[1:], dpi=_DOTS_PER_INCH, metadata=without_date, facecolor="white")


@functools.cache
def _families() -> dict[str, str]:
    """The family of each language, by its subtag."""
    table = json.loads(files(__package__).joinpath("language_families.json").read_text("utf-8"))
    return {language: family for family, languages in table.items() for language in languages}


def family_of(language: str) -> str:
    """The family of a language, such as `Slavic`; `other` for one that is not in the table."""
    return _families().get(language.partition("-")[0], "other")


def family_styles(languages: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Family -> color and marker, the family of most languages first; families beyond the colors share gray with
    markers of their own."""
    members = [family_of(language) for language in languages]
    ordered = sorted(dict.fromkeys(members), key=lambda family: (family == "other", -members.count(family), family))
    return {
        family: (COLORS[index] if index < len(COLORS) and family != "other" else PALE, MARKERS[index % len(MARKERS)])
        for index, family in enumerate(ordered)
    }


def matrix(
    axes: Any, values: np.ndarray, rows: Sequence[str], columns: Sequence[str], *, texts: Any = None, **options: Any
) -> Any:
    """Draws a matrix as colored cells with the names of its rows and columns.

    Args:
        axes: where to draw.
        values: [R, C]; cells that are NaN stay empty.
        rows, columns: their names.
        texts: what stands in each cell, [R][C].
        options: of `Axes.pcolormesh`: `cmap`, `vmin`, `vmax`.
    """
    mesh = axes.pcolormesh(np.ma.masked_invalid(values), edgecolors="white", linewidth=0.4, **options)
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axes.tick_params(length=0)
    axes.invert_yaxis()
    for spine in axes.spines.values():
        spine.set_visible(False)
    for (row, column), value in np.ndenumerate(values):
        if texts is not None and np.isfinite(value):
            ink = _readable_on(mesh.cmap(mesh.norm(value)))
            axes.text(column + 0.5, row + 0.5, texts[row][column], ha="center", va="center", color=ink, fontsize=6.5)
    return mesh


def _readable_on(color: Sequence[float]) -> str:
    red, green, blue = color[:3]
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.56 else INK


def label_points(axes: Any, points: np.ndarray, labels: Sequence[str], size: float = 7) -> None:
    """Writes a label beside each point, [N, 2], on the side where it is least in the way of points and other labels.

    The limits of the axes must be final.
    """
    figure = axes.figure
    figure.draw_without_rendering()  # the layout decides where the axes are
    pixels = axes.transData.transform(points)
    unit = size * figure.dpi / 72
    boxes = [np.array([x - unit / 3, y - unit / 3, x + unit / 3, y + unit / 3]) for x, y in pixels]
    frame = axes.get_window_extent()
    for point, (x, y), label in zip(points, pixels, labels, strict=True):
        wide, high, gap = 0.65 * unit * len(label), unit, 0.45 * unit
        least = np.inf
        for across, up in _SIDES:
            left = x + across * gap - wide * (1 - np.clip(across, -1, 1)) / 2
            low = y + up * gap - high * (1 - np.clip(up, -1, 1)) / 2
            box = np.array([left, low, left + wide, low + high])
            outside = max(0, frame.x0 - left) + max(0, box[2] - frame.x1) + max(0, frame.y0 - low)
            cost = sum(_overlap(box, other) for other in boxes) + high * (outside + max(0, box[3] - frame.y1))
            if cost < least:
                least, chosen, is_far = cost, box, max(abs(across), abs(up)) > 1
        boxes.append(chosen)
        offset = tuple(72 / figure.dpi * (chosen[:2] - (x, y)))
        line = {"arrowstyle": "-", "linewidth": 0.4, "color": PALE, "shrinkA": 0, "shrinkB": 2} if is_far else None
        axes.annotate(
            label, point, xytext=offset, textcoords="offset points", fontsize=size, color=INK, va="bottom",
            arrowprops=line,
        )  # fmt: skip


# In which direction a label may stand from its point, in gaps and the best one first; farther ones get a line.
_NEAR = ((1, 0), (1, 1), (1, -1), (-1, 0), (-1, 1), (-1, -1), (0, 1), (0, -1))
_SIDES = (*_NEAR, *((across * far, up * far) for far in (3, 5, 7) for across, up in _NEAR))


def _overlap(one: np.ndarray, other: np.ndarray) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, width) * max(0.0, height)

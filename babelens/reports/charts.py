"""The geometry of a report's charts; `charts.html.jinja` draws them as SVG.

Bars are measured in percent of their row, so that their texts keep their size on a narrow screen. Curves are drawn in
a box of `WIDTH` × `HEIGHT`, which is about as wide as a phone's screen.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 340, 190
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 26
# Lines with colors of their own; `style.css.jinja` has as many, and further lines are gray.
COLORS = 8


@dataclass(frozen=True)
class Bar:
    """A row of a bar chart.

    Args:
        label: what it is about: the tag of a language, or the name of a mean.
        name: a longer name of the same, empty where there is none.
        value: its length.
        interval: the ends of its interval, where there is one.
        dots: the values of single runs, of which `value` is the mean.
        is_mean: whether it sums up the rows before it.
    """

    label: str
    name: str
    value: float
    interval: tuple[float, float] | None = None
    dots: Sequence[float] = ()
    is_mean: bool = False


@dataclass(frozen=True)
class Line:
    """A line of a chart, in the chart's coordinates.

    Args:
        name: what it shows.
        color: the index of its color; None for gray.
        points: x, y and what is shown where the reader points at.
    """

    name: str
    color: int | None
    points: list[tuple[float, float, str]]

    @property
    def path(self) -> str:
        return " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in self.points)


@dataclass(frozen=True)
class LineChart:
    """A chart of quantities that change with the steps of a training.

    Args:
        title: what the lines have in common.
        description: the same in words, for those who cannot see it.
        lines: the lines.
        x_ticks, y_ticks: positions and labels.
    """

    title: str
    description: str
    lines: list[Line]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]


Points = Sequence[tuple[float, float]]


def line_chart(title: str, lines: Sequence[tuple[str, Points]]) -> LineChart:
    """A chart of named lines, each with a point or more; what is not finite is left out."""
    kept = [(name, [(x, y) for x, y in points if math.isfinite(y)]) for name, points in lines]
    kept = [(name, points) for name, points in kept if points]
    every = [point for _, points in kept for point in points]
    x_ticks = ticks(0, max((x for x, _ in every), default=1))
    y_ticks = ticks(min((y for _, y in every), default=0), max((y for _, y in every), default=1))
    x_of = _scale(0, max([x_ticks[-1], *(x for x, _ in every)]), LEFT, WIDTH - RIGHT)
    y_of = _scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    drawn = [
        Line(
            name,
            index if index < COLORS else None,
            [(x_of(x), y_of(y), f"{name}: {number(y)} at step {x:,.0f}") for x, y in points],
        )
        for index, (name, points) in enumerate(kept)
    ]
    parts = [
        f"{name} is {number(points[0][1])} at step {points[0][0]:,.0f} and {number(points[-1][1])} at step "
        f"{points[-1][0]:,.0f}"
        for name, points in kept
    ]
    return LineChart(
        title,
        f"{'; '.join(parts)}.",
        drawn,
        [(x_of(x), f"{x:,.0f}") for x in x_ticks],
        [(y_of(y), label) for y, label in zip(y_ticks, tick_labels(y_ticks), strict=True)],
    )


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """About `count` round numbers, the first at most `low` and the last at least `high`."""
    span = high - low or abs(high) or 1.0
    magnitude = 10.0 ** math.floor(math.log10(span / count))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude * count >= span * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 12) for index in range(first, max(last, first + 1) + 1)]


def tick_labels(values: Sequence[float]) -> list[str]:
    """Labels of ticks, with as many digits as tell them apart: `6.41`, `6.42`, and not `6.4` twice."""
    labels = [number(value) for value in values]
    if len({*labels}) == len(labels):
        return labels
    written = ([f"{value:,.{decimals}f}" for value in values] for decimals in range(13))  # `ticks` rounds to twelve
    return next((each for each in written if len({*each}) == len(each)), labels)


def number(value: float) -> str:
    """A number with three digits: `0.00125`, `31.7`, `1,240`."""
    if value and not 1e-3 <= abs(value) < 1e6:
        mantissa, _, exponent = f"{value:.2e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    span = high - low or 1.0
    return lambda value: start + (value - low) / span * (end - start)

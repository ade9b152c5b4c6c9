"""The training of a run as a report shows it: curves of what was logged, and what the training cost."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .charts import LineChart, Points, line_chart
from .sources import Run

_EVAL = "eval_"
_LOSS, _TASK_LOSS = "loss", "loss_"
_RATE = "learning_rate"
_MEAN = "mean_recall"
# What the trainer logs about itself.
_UNSHOWN = ("epoch", "step", "train_", "total_flos", "eval_runtime", "eval_samples", "eval_steps", "num_input_tokens")


@dataclass(frozen=True)
class Stage:
    """The curves of a stage; `more` are those that few readers ask for, and `single` says what was logged once, which
    makes no curve."""

    title: str
    charts: list[LineChart]
    more: list[LineChart]
    single: list[str]


@dataclass(frozen=True)
class Cost:
    """A number that tells what a model costs.

    Args:
        title: of what.
        value: the number with its unit.
        note: what else is known of it.
    """

    title: str
    value: str
    note: str = ""


def stages(runs: Sequence[Run]) -> list[Stage]:
    """The curves of each stage that has a log."""
    names = dict.fromkeys(log["stage"] for run in runs for log in run.logs)
    found = (_stage(name, {run.name: _log_of(run, name) for run in runs}) for name in names)
    return [stage for stage in found if stage.charts or stage.single]


def _stage(name: str, logs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Stage:
    """Of one run, the parts of a quantity are lines of one chart; of several runs, each has a line for the whole."""
    keys = list(dict.fromkeys(key for log in logs.values() for entry in log for key in entry))
    keys = [key for key in keys if not key.startswith(_UNSHOWN)]
    losses = [_LOSS, *(key for key in keys if key.startswith(_TASK_LOSS))]
    measures = [key for key in keys if key.startswith(_EVAL)]
    main = [key for key in (f"{_EVAL}{_MEAN}", *measures) if key in measures][:1]
    rest = [key for key in keys if key not in (*losses, *measures, _RATE)]
    titled = {
        "Training loss": losses if len(logs) == 1 else losses[:1],
        "Learning rate": [_RATE],
        "On the validation data": list(dict.fromkeys(main + measures)) if len(logs) == 1 else main,
    }
    charts = {title: _chart(title, each, logs) for title, each in titled.items()}
    more = [_chart(key.replace("_", " ").capitalize(), [key], logs) for key in rest]
    drawn = [chart for chart in charts.values() if _is_curve(chart)]
    single = [line.points[0][2] for chart in (*charts.values(), *more) if not _is_curve(chart) for line in chart.lines]
    return Stage(name, drawn, [chart for chart in more if _is_curve(chart)], single)


def _is_curve(chart: LineChart) -> bool:
    """Whether a line of the chart leads from one step to another."""
    return any(len(line.points) > 1 for line in chart.lines)


def _chart(title: str, keys: Sequence[str], logs: Mapping[str, Sequence[Mapping[str, Any]]]) -> LineChart:
    lines: list[tuple[str, Points]] = []
    for run, log in logs.items():
        for key in keys:
            name = run if len(logs) > 1 else key.removeprefix(_EVAL).replace("_", " ")
            lines.append((name, list(_points(log, key))))
    return line_chart(title, lines)


def _points(log: Sequence[Mapping[str, Any]], key: str) -> Iterator[tuple[float, float]]:
    for entry in log:
        if isinstance(entry.get(key), int | float) and "step" in entry:
            yield entry["step"], entry[key]


def _log_of(run: Run, stage: str) -> Sequence[Mapping[str, Any]]:
    return next((log["log"] for log in run.logs if log["stage"] == stage), [])


def costs(runs: Sequence[Run]) -> list[Cost]:
    """What training cost, as the mean over the runs, and how large the model is."""
    trainings = [run.card["run"] for run in runs if run.card.get("run")]
    found = []
    if trainings:
        minutes = [training["seconds"] / 60 for training in trainings]
        found.append(Cost("Training time", f"{statistics.mean(minutes):.1f} min", trainings[0]["hardware"]))
        steps = sorted({training["steps"] for training in trainings})
        found.append(Cost("Steps", " to ".join(f"{count:,}" for count in dict.fromkeys((steps[0], steps[-1])))))
    for key, title in {"process": "Memory", "accelerator": "Memory of the accelerator"}.items():
        if amounts := [run.memory[key] for run in runs if key in run.memory]:
            found.append(Cost(title, f"{max(amounts):.1f} GB", "the most that was in use"))
    if parameters := {run.card["parameters"] for run in runs if run.card.get("parameters")}:
        found.append(Cost("Parameters", _large(max(parameters)), f"{max(parameters):,}"))
    return found


def _large(count: int) -> str:
    for size, unit in ((10**9, "billion"), (10**6, "million")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:,}"

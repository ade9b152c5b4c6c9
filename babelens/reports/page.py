"""Writing the report: one HTML page that holds everything that it shows, and asks nothing of the network.

`page.html.jinja` is the page, `charts.html.jinja` draws its charts as SVG, `style.css.jinja` is its style.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

import jinja2
from PIL import Image

from .. import __version__
from ..configuration.files import atomic_file
from ..evaluation.found_images import Gallery, GalleryRow, TextsRow, gallery_of, webp_of
from ..model_cards.base_models import BaseModel
from ..model_cards.licenses import what_it_forbids
from . import charts
from .charts import Bar, LineChart, Points, line_chart
from .results import (
    LanguageFacts,
    Run,
    Sources,
    TestSet,
    is_language,
    language_facts,
    read_sources,
    test_sets,
)

REPORT = "report.html"
_ENDING = ".report.html"
_SIDE = 192  # pixels, at most, of an image on a sheet
_TRAINED = {
    "image_languages": "Trained with captioned images",
    "pair_languages": "Trained with translations only",
    "unseen_languages": "Never seen in training",
}


def report_file(path: str | Path) -> Path:
    """Where the report about a run's folder or a file of results is written, unless another place is given."""
    path = Path(path)
    return path / REPORT if path.is_dir() else path.with_suffix(_ENDING)


def write_report(path: str | Path, output: str | Path | None = None) -> Path:
    """Writes the report about a run.

    Args:
        path: the folder of a run, a folder with a run for each seed, or a file of `babelens evaluate --output`.
        output: the file to write; by default `report.html` in the folder, or beside a file of results.

    Returns:
        The report's path.

    Raises:
        ComparisonError: for a path without results, a file that is damaged, and runs that were evaluated on different
            queries.
        SaveError: when the file cannot be written.
    """
    file = Path(output) if output else report_file(path)
    page = report_page(read_sources(Path(path)))
    with atomic_file(file) as unfinished:
        unfinished.write_text(page, encoding="utf-8", errors="replace")
    return file


def report_page(sources: Sources) -> str:
    """The report as HTML."""
    tests = [test for evaluation in sources.evaluations for test in test_sets(evaluation)]
    galleries = {each.name: each.gallery for each in sources.evaluations if each.gallery is not None}
    # The most languages tell the most; of several such, the last is the easiest question of the emoji benchmark.
    main = max(reversed(tests), key=lambda test: len(test.bars), default=None)
    card = sources.runs[0].card if sources.runs else {}
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            name=card.get("model_name") if len(sources.runs) == 1 and card.get("model_name") else sources.name,
            version=__version__,
            runs=sources.runs,
            card=card,
            tests=tests,
            main=main,
            headline=fmean(bar.value for bar in main.bars.values()) if main and main.bars else None,
            **_shown(galleries),
            languages=list(_language_groups(card, main)),
            scripts=_scripts(card, main),
            stages=stages(sources.runs),
            costs=costs(sources.runs),
            base_models=[BaseModel(**base) for base in card.get("base_models", [])],
            commands=list(dict.fromkeys(run.card["run"]["command"] for run in sources.runs if run.card.get("run"))),
        )
    )


@dataclass(frozen=True)
class Tile:
    """A language in the overview, with its bar of the main test set where it has one."""

    language: LanguageFacts
    bar: Bar | None


def _language_groups(card: Mapping[str, Any], main: TestSet | None) -> Iterator[tuple[str, list[Tile]]]:
    """The languages by the kind of their training data; those of which nothing is known, as others."""
    bars = dict(main.bars) if main else {}
    known = {title: list(card.get(key) or []) for key, title in _TRAINED.items()}
    trained = [tag for tags in known.values() for tag in tags]
    others = [tag for tag in dict.fromkeys([*card.get("languages", []), *bars]) if tag not in trained]
    for title, tags in {**known, "Other languages" if trained else "Languages": others}.items():
        if tags:
            yield title, [Tile(language_facts(tag), bars.get(tag)) for tag in tags]


def _scripts(card: Mapping[str, Any], main: TestSet | None) -> list[tuple[str, list[str]]]:
    """The scripts of all languages, the most frequent first, with their languages."""
    tags = [tile.language for _, tiles in _language_groups(card, main) for tile in tiles]
    by_script = sorted((each for each in tags if each.script), key=lambda each: each.script)
    groups = [
        (script, [each.tag for each in members]) for script, members in groupby(by_script, lambda each: each.script)
    ]
    return sorted(groups, key=lambda group: -len(group[1]))


def write_gallery_page(
    file: str | Path, title: str, rows: Sequence[GalleryRow | TextsRow], credits: Sequence[str] = ()
) -> None:
    """Writes queries with what models found for them as a page of its own.

    Args:
        file: the file to write.
        title: the title of the page.
        rows: the queries.
        credits: lines that name the owners of the images.

    Raises:
        SaveError: if the file cannot be written.
    """
    _write("found.html.jinja", file, title, **_shown({title: gallery_of(rows, credits)}))


def write_sheet(
    file: str | Path, title: str, images: Sequence[Image.Image], labels: Sequence[tuple[str, str]]
) -> None:
    """Writes images, each with a line below, as a page of its own.

    Args:
        file: the file to write.
        title: the title of the page.
        images: the images.
        labels: the line of each image and its language, a BCP-47 tag.

    Raises:
        SaveError: if the file cannot be written.
    """
    shown = [(webp_of(image, _SIDE), *label) for image, label in zip(images, labels, strict=True)]
    _write("sheet.html.jinja", file, title, images=shown, side=_SIDE)


def _write(template: str, file: str | Path, title: str, **given: Any) -> None:
    page = _environment().get_template(template).render(name=title, version=__version__, **given)
    with atomic_file(file) as path:
        path.write_text(page, encoding="utf-8", errors="replace")


def _shown(galleries: Mapping[str, Gallery]) -> dict[str, Any]:
    """What the template of galleries needs: the rows of each by their headings."""
    shown = []
    for name, gallery in galleries.items():
        sections: dict[str, list[Mapping[str, Any]]] = {}
        heading = ""
        for row in gallery.rows:
            heading = row["heading"] or heading
            sections.setdefault(heading, []).append(row)
        shown.append({"name": name, "sections": sections, "texts": gallery.texts, "credits": gallery.credits})
    return {"galleries": shown}


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": charts.number,
        "is_language": is_language,
        "language_name": lambda tag: language_facts(tag).name,
        "forbids": what_it_forbids,
        "is_web": lambda url: bool(url) and url.startswith(("https://", "http://")),
    }
    environment.globals |= {
        name: getattr(charts, name) for name in ("WIDTH", "HEIGHT", "LEFT", "RIGHT", "TOP", "BOTTOM", "COLORS")
    }
    return environment


# ---- The training of a run as a report shows it: curves of what was logged, and what the training cost ----


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

"""SMALR's family and LIWE on the emoji benchmark (Burns et al. 2020, tables 1 and 2, figures 1b and 3): the rows of
recipes/emoji/smalr, several seeds, a table and two plots.

    babelens train emoji/mla/clip --output runs/clip
    python benchmarks/emoji_smalr.py --backbone runs/clip --output runs/smalr

All rows see the same frozen CLIP's features of the same images. Rows that begin with the same latent vocabulary take
it from the row `smalr` of their seed. CLC-A and CLC-C stand on top of `smalr`; CLC-C is fitted on the validation split
with English queries, and the translations are Unicode's own names, as good as translations can be: with CLC, the names
of an emoji in all languages ask together, so that every language finds the same.

With `--counts`, some rows are trained on fewer languages as well. A run that is there is not trained again. Plots need
matplotlib (`make bench-env`).
"""

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from emoji_rows import Experiment, scores, spread
from transformers import AutoConfig, AutoModel

from babelens import Embedder
from babelens.configuration.configuration_smalr import SMALR_LANGUAGES
from babelens.evaluation.consistency import emoji_consistency

ROWS = {
    "smalr": "SMALR",
    "hem": "HEM",
    "la": "LA",
    "mule": "MULE",
    "par-embn": "PAR-EmbN",
    "liwe": "S-LIWE",
}
CONSISTENCY = {"clc_a": "SMALR-CLC-A", "clc_c": "SMALR-CLC-C"}
_SAME_LATENT = ("hem", "la")
# Beside the page of results that shows them.
PLOTS = Path(__file__).parents[1] / "docs/results/images"
# The rows of figure 1b.
_COUNTED = ("smalr", "mule", "liwe")
_QUESTIONS = ("unseen_vendor", "unseen_concepts")
_PLOTTED = "unseen_vendor"


@dataclass(frozen=True)
class Point:
    """A row's results: mean recall in per cent, by question, seed and language, and parameters by seed."""

    title: str
    recalls: dict[str, list[dict[str, float]]]
    trained: list[int]
    at_test_time: list[int]

    def means(self, question: str) -> list[float]:
        """Over the languages, of each seed."""
        return [statistics.mean(recall.values()) for recall in self.recalls[question]]


def main(
    output: Annotated[Path, typer.Option(help="Folder of the runs.")],
    backbone: Annotated[Path, typer.Option(help="The English CLIP.")] = Path("runs/clip"),
    seeds: Annotated[str, typer.Option(help="With commas between.")] = "1,2,3",
    rows: Annotated[str, typer.Option(help="With commas between.")] = ",".join(ROWS),
    counts: Annotated[
        str, typer.Option(help=f"Numbers of languages to train {', '.join(_COUNTED)} on, of the paper's ten.")
    ] = "10",
    plots: Annotated[Path, typer.Option(help="Folder of the plots.")] = PLOTS,
    only_table: Annotated[bool, typer.Option("--only-table", help="Of what has been trained already.")] = False,
) -> None:
    """Train the rows, print the table, draw the plots."""
    numbers, chosen = [int(seed) for seed in seeds.split(",")], sorted(rows.split(","), key=list(ROWS).index)
    all_languages = len(SMALR_LANGUAGES)
    fewer = sorted({int(count) for count in counts.split(",")} - {all_languages})
    counted = [row for row in chosen if row in _COUNTED]
    experiment = partial(_experiment, output, backbone)
    for seed in [] if only_table else numbers:
        for row, count in [*product(chosen, [all_languages]), *product(counted, fewer)]:
            if row in _SAME_LATENT:
                learned = experiment("smalr", count).finished("smalr", seed, "latent")
                experiment(row, count).give_stage(learned, row, seed, "latent")
            experiment(row, count).train(row, seed)
    points = {row: point for row in chosen if (point := _point(experiment(row, all_languages), row, numbers))}
    shown = list(points.values())
    if "smalr" in points:
        runs = experiment("smalr", all_languages)
        shown += [_consistent(runs, numbers, points["smalr"], aggregation) for aggregation in CONSISTENCY]
    print(table(shown))
    if shown:
        _draw_parameters(shown, plots / "emoji_smalr_parameters.png")
    curves = {
        row: {
            count: point
            for count in [*fewer, all_languages]
            if (point := _point(experiment(row, count), row, numbers))
        }
        for row in counted
    }
    if any(curves.values()):
        _draw_languages(curves, plots / "emoji_smalr_languages.png")


def _experiment(output: Path, backbone: Path, row: str, count: int) -> Experiment:
    """The runs of a row on the first `count` of the paper's languages."""
    settings = [f"backbone={backbone}"]
    if count == len(SMALR_LANGUAGES):
        return Experiment("emoji/smalr", output, settings)
    languages = json.dumps(SMALR_LANGUAGES[:count])
    tasks = ["image_text"] if row == "liwe" else ["image_text", "text_text"]
    settings += [f"train.{task}.languages={languages}" for task in tasks]
    return Experiment("emoji/smalr", output / f"{count}-languages", settings)


# ---- Results ----


def _point(experiment: Experiment, row: str, seeds: list[int]) -> Point | None:
    """The results of the seeds that have been trained; None while there are none."""
    found = [seed for seed in seeds if experiment.report(row, seed)]
    if not found:
        return None
    parts = [_parameters(experiment.folder(row, seed)) for seed in found]
    reports = experiment.reports(row, found)
    return Point(
        ROWS[row],
        {question: [_trained_on(report, question) for report in reports] for question in _QUESTIONS},
        [sum(part.values()) for part in parts],
        # A text that SMALR's family reads is rows of a table, made before (section 5); LIWE needs all that it has.
        [sum(n for name, n in part.items() if row == "liwe" or name in ("image", "transformer")) for part in parts],
    )


def _trained_on(report: dict[str, Any], question: str) -> dict[str, float]:
    """Mean recall in the languages that had images in training."""
    image = {"groups": {"image": report[question]["groups"]["image"]}}
    return scores({question: image}, question, "mean_recall")


def _parameters(folder: Path) -> dict[str, int]:
    """By part, without the frozen backbone."""
    with torch.device("meta"):
        parts = AutoModel.from_config(AutoConfig.from_pretrained(folder)).parameter_parts()
    return {name: count for name, count in parts.items() if name != "backbone"}


def _consistent(experiment: Experiment, seeds: list[int], smalr: Point, aggregation: str) -> Point:
    """CLC on top of the runs of SMALR."""
    folders = [experiment.folder("smalr", seed) for seed in seeds if experiment.report("smalr", seed)]
    found = [_consistency(folder)[aggregation] for folder in folders]
    recalls = {
        question: [
            {language: numbers["mean_recall"] for language, numbers in result["recalls"][question].items()}
            for result in found
        ]
        for question in _QUESTIONS
    }
    return Point(
        CONSISTENCY[aggregation],
        recalls,
        [count + result["parameters"] for count, result in zip(smalr.trained, found, strict=True)],
        [count + result["parameters"] for count, result in zip(smalr.at_test_time, found, strict=True)],
    )


def _consistency(folder: Path) -> dict[str, dict[str, Any]]:
    """The results of CLC-A and CLC-C, kept in `evaluation/consistency.json`."""
    file = folder / "evaluation" / "consistency.json"
    if not file.is_file():
        found = emoji_consistency(Embedder.from_pretrained(folder), SMALR_LANGUAGES)
        file.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return json.loads(file.read_text(encoding="utf-8"))


# ---- Shown ----


def table(points: list[Point]) -> str:
    """Mean recall in per cent, the mean of the ten languages, mean ± deviation over seeds; parameters in millions."""
    lines = ["| row | vendor | concepts | trained, M | at test time, M |", "|---|--:|--:|--:|--:|"]
    for point in points:
        recalls = " | ".join(spread(point.means(question)) for question in _QUESTIONS)
        lines.append(f"| {point.title} | {recalls} | {_millions(point.trained)} | {_millions(point.at_test_time)} |")
    return "\n".join(lines)


def _millions(counts: list[int]) -> str:
    """Of the seeds, which differ in how many latent tokens are in use."""
    return f"{statistics.mean(counts) / 1e6:.2f}"


def _draw_parameters(points: list[Point], path: Path) -> None:
    """Figure 3: performance against parameters, in training and, hollow, at test time."""

    def draw(axes: Any) -> None:
        for point in points:
            recall = statistics.mean(point.means(_PLOTTED))
            trained, used = (statistics.mean(counts) / 1e6 for counts in (point.trained, point.at_test_time))
            (line,) = axes.plot([used, trained], [recall, recall], "-", alpha=0.3)
            axes.plot(trained, recall, "o", color=line.get_color(), label=point.title)
            axes.plot(used, recall, "o", color=line.get_color(), markerfacecolor="none")
        axes.set(xlim=0, xlabel="parameters in millions: trained (full), at test time (hollow)")

    _draw(draw, path)


def _draw_languages(curves: dict[str, dict[int, Point]], path: Path) -> None:
    """Figure 1b: performance against the number of training languages, and, dashed, that in English alone."""

    def draw(axes: Any) -> None:
        for row, curve in curves.items():
            if not curve:
                continue
            counts = sorted(curve)
            means = [statistics.mean(curve[count].means(_PLOTTED)) for count in counts]
            english = [statistics.mean(recall["en"] for recall in curve[count].recalls[_PLOTTED]) for count in counts]
            (line,) = axes.plot(counts, means, "o-", label=ROWS[row])
            axes.plot(counts, english, "o--", color=line.get_color(), alpha=0.5)
        axes.set(xlabel="languages trained on: their mean (solid), English (dashed)", xlim=(0.5, 10.5))

    _draw(draw, path)


def _draw(draw: Callable[[Any], None], path: Path) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    draw(axes)
    axes.set(ylabel=f"mean recall, {_PLOTTED.replace('_', ' ')}, %")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110)
    print(f"wrote {path.name}")


if __name__ == "__main__":
    typer.run(main)

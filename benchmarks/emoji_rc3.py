"""RC3's ablations on the emoji benchmark (Zhou et al. 2023, tables 1, 2 and 4): the rows of recipes/emoji/rc3, several
seeds, fine-tuned in English on three tasks, a table.

    babelens train emoji/rc3/backbone --output runs/backbone
    python benchmarks/emoji_rc3.py --backbone runs/backbone --output runs/rc3

Every row is pre-trained in seven languages and then fine-tuned on each task in English alone. As in table 4, the
ablations and the full pre-training they are compared with are fine-tuned on regions. Runs lie in `pretrain/` and in a
folder for each task. One that is there is not trained again, and one that was broken off goes on from its last
checkpoint. Seeds come one after the other, so that there is a table of all rows after the first.
"""

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from emoji_rows import Experiment, FineTuning, spread

from babelens.trainers.checkpoints import newest_checkpoint

NATIVE = "en"


@dataclass(frozen=True)
class Task:
    """What rows are fine-tuned on.

    Args:
        report: the task's name in reports.
        scores: headings, and what stands under them, of a language's numbers.
        paper: the data set it stands for in the paper's tables.
    """

    report: str
    scores: dict[str, Callable[[dict[str, float]], float]]
    paper: str


@dataclass(frozen=True)
class Row:
    """A pre-training, by its recipe.

    Args:
        title: in the table.
        visual: what it is fine-tuned and tested with.
        paper: table 4, for patches tables 1 and 2: accuracy on XVNLI and xGQA and recall at 1 of retrieval, in
            English and in the other languages (fr; de, id, zh; de, ja, zh).
    """

    title: str
    visual: str
    paper: tuple[tuple[float, tuple[float, ...]] | None, ...] = (None, None, None)


def recall_at(k: int) -> Callable[[dict[str, float]], float]:
    """The mean of both directions."""
    return lambda numbers: (numbers[f"t2i_r{k}"] + numbers[f"i2t_r{k}"]) / 2


def accuracy(numbers: dict[str, float]) -> float:
    return numbers["accuracy"]


TASKS = {
    "entailment": Task("visual-entailment", {"entailment": accuracy}, "XVNLI"),
    "vqa": Task("visual-question-answering", {"questions": accuracy}, "xGQA"),
    "itr": Task("image-text-retrieval", {"R@1": recall_at(1), "R@10": recall_at(10)}, "ITR R@1"),
}
ROWS = {
    "pretrain": Row(
        "full",
        "regions",
        ((77.91, (71.65,)), (54.13, (40.39, 29.24, 36.06)), (41.12, (35.22, 30.82, 35.55))),
    ),
    "no-kl": Row(
        "w/o KL",
        "regions",
        ((76.26, (70.69,)), (53.41, (43.49, 24.32, 33.27)), (40.60, (34.72, 29.15, 35.20))),
    ),
    "no-rxvtcl": Row(
        "w/o R-XVtCL",
        "regions",
        ((74.34, (70.26,)), (52.63, (44.87, 20.06, 41.93)), (40.82, (34.02, 30.72, 35.02))),
    ),
    "no-contrast": Row(
        "w/o R-XVtCL & XTCL",
        "regions",
        ((76.17, (70.52,)), (52.43, (39.71, 11.17, 33.28)), (39.22, (33.80, 30.02, 34.70))),
    ),
    "both": Row(
        "both",
        "both",
        ((78.43, (72.43,)), (55.92, (43.69, 31.94, 39.49)), (41.30, (34.35, 30.90, 37.25))),
    ),
    "regions": Row("regions alone", "regions"),
    "patches": Row("patches alone", "patches", ((71.21, (64.43,)), (41.36, (24.44, 22.53, 25.97)), None)),
}


def main(
    output: Annotated[Path, typer.Option(help="Output folder of the runs.")],
    backbone: Annotated[Path, typer.Option(help="Vision model whose features are the regions of an image.")] = Path(
        "runs/backbone"
    ),
    seeds: Annotated[str, typer.Option(help="Comma-separated list.")] = "1,2,3",
    rows: Annotated[str, typer.Option(help="Comma-separated list.")] = ",".join(ROWS),
    tasks: Annotated[str, typer.Option(help="Comma-separated list.")] = ",".join(TASKS),
    steps: Annotated[
        int | None, typer.Option(help="Number of pre-training steps; default: that of the recipe.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Of every run, such as `training.max_steps=10`, to try the script."),
    ] = None,
    only_table: Annotated[
        bool, typer.Option("--only-table", help="Do not train; make the table of the finished runs.")
    ] = False,
) -> None:
    """Train the rows and print the table."""
    numbers, chosen = [int(seed) for seed in seeds.split(",")], sorted(rows.split(","), key=list(ROWS).index)
    given = [f"backbone={backbone}", *(settings or [])]
    pretraining = Experiment(
        "emoji/rc3", output / "pretrain", given if steps is None else [*given, f"training.max_steps={steps}"]
    )
    fine_tuning = {task: _fine_tuning(task, pretraining, output, given) for task in tasks.split(",")}
    for seed in [] if only_table else numbers:
        for row in chosen:
            for experiment in (pretraining, *fine_tuning.values()):
                experiment.train(row, seed)
    print(table(pretraining, fine_tuning, chosen, numbers))


def _fine_tuning(task: str, pretraining: Experiment, output: Path, settings: list[str]) -> FineTuning:
    return FineTuning(
        f"emoji/rc3/{task}",
        output / task,
        settings,
        f"{TASKS[task].report}.json",
        start=pretraining,
        of_row={name: [f"model.overrides.visual={row.visual}"] for name, row in ROWS.items()},
    )


# ---- The tables ----


def table(pretraining: Experiment, fine_tuning: dict[str, FineTuning], rows: list[str], seeds: list[int]) -> str:
    """For each test set, English / the mean of the other languages in per cent: mean ± deviation over seeds."""
    tests = dict.fromkeys(
        test
        for experiment in fine_tuning.values()
        for row in rows
        for report in experiment.reports(row, seeds)
        for test in report
    )
    return "\n\n".join(_table(test, pretraining, fine_tuning, rows, seeds) for test in tests)


def _table(
    test: str, pretraining: Experiment, fine_tuning: dict[str, FineTuning], rows: list[str], seeds: list[int]
) -> str:
    scores = [heading for task in fine_tuning for heading in TASKS[task].scores]
    headings = ["row", "ITM in pre-training", *scores, *(f"paper: {task.paper}" for task in TASKS.values())]
    lines = [f"{test}, English / other languages\n", f"| {' | '.join(headings)} |"]
    lines.append("|---|" + "--:|" * (len(headings) - 1))
    for name in rows:
        if not any(experiment.reports(name, seeds) for experiment in fine_tuning.values()):
            continue
        cells = [ROWS[name].title, spread_of(matching_accuracies(pretraining, name, seeds))]
        for task, experiment in fine_tuning.items():
            found = [report[test] for report in experiment.reports(name, seeds)]
            cells += [_both(found, score) for score in TASKS[task].scores.values()]
        cells += [
            "–" if found is None else f"{found[0]:.1f} / {statistics.mean(found[1]):.1f}" for found in ROWS[name].paper
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _both(found: list[dict[str, dict[str, float]]], score: Callable[[dict[str, float]], float]) -> str:
    """Of the results of several seeds by language."""
    native = [score(results[NATIVE]) for results in found]
    others = [
        statistics.mean(score(numbers) for language, numbers in results.items() if language != NATIVE)
        for results in found
    ]
    return f"{spread_of(native)} / {spread_of(others)}"


def matching_accuracies(pretraining: Experiment, row: str, seeds: list[int]) -> list[float]:
    """Image-text matching in per cent, on the images of the vendor that was held out, by the end of a run."""
    found = []
    for seed in seeds:
        checkpoint = newest_checkpoint(pretraining.folder(row, seed) / "checkpoints")
        if checkpoint is None:
            continue
        state: dict[str, Any] = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
        evaluated = [entry["eval_itm_accuracy"] for entry in state["log_history"] if "eval_itm_accuracy" in entry]
        found += [100 * accuracy for accuracy in evaluated[-1:]]
    return found


def spread_of(values: list[float]) -> str:
    return spread(values) if values else "–"


if __name__ == "__main__":
    typer.run(main)

"""RC3's ablations on the emoji benchmark (Zhou et al. 2023, tables 1, 2 and 4): the rows of recipes/emoji/rc3, several
seeds, fine-tuned in English on three tasks, a table.

    babelens train emoji/rc3/backbone --output runs/backbone
    python benchmarks/emoji_rc3.py --backbone runs/backbone --output runs/rc3

Pre-training is in seven languages, fine-tuning on each task in English alone. As in table 4, the ablations and the
full pre-training they are compared with are fine-tuned on regions; the last two rows are the full pre-training,
fine-tuned on patches and on both, as in tables 1 and 2. Runs lie in `pretrain/` and in a folder for each task; one
that was broken off goes on from its last checkpoint. Seeds come one after the other, so that there is a table of all
rows after the first.
"""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rows import Changes, Experiment, OnlyTable, Output, Rows, Seeds, chosen, markdown, numbers, spread

from babelens.trainers.checkpoints import newest_checkpoint

NATIVE = "en"
Score = Callable[[dict[str, float]], float]


def recall_at(k: int) -> Score:
    """The mean of both directions."""
    return lambda found: (found[f"t2i_r{k}"] + found[f"i2t_r{k}"]) / 2


def accuracy(found: dict[str, float]) -> float:
    return found["accuracy"]


# Task -> its columns.
TASKS: dict[str, dict[str, Score]] = {
    "entailment": {"entailment": accuracy},
    "vqa": {"questions": accuracy},
    "itr": {"R@1": recall_at(1), "R@10": recall_at(10)},
}
# Row -> what it is, its pre-training, what it is fine-tuned and tested with, and the paper's figures (table 4, for
# patches and both tables 1 and 2): accuracy on XVNLI and xGQA and recall at 1 of retrieval, in English / the mean of
# the other languages (fr; de, id, zh; de, ja, zh).
PAPER = ("paper: XVNLI", "paper: xGQA", "paper: ITR R@1")
ROWS = {
    "full": ("full", "pretrain", "regions", ("77.9 / 71.7", "54.1 / 35.2", "41.1 / 33.9")),
    "no-kl": ("w/o KL", "no-kl", "regions", ("76.3 / 70.7", "53.4 / 33.7", "40.6 / 33.0")),
    "no-rxvtcl": ("w/o R-XVtCL", "no-rxvtcl", "regions", ("74.3 / 70.3", "52.6 / 35.6", "40.8 / 33.3")),
    "no-contrast": ("w/o R-XVtCL & XTCL", "no-contrast", "regions", ("76.2 / 70.5", "52.4 / 28.1", "39.2 / 32.8")),
    "patches": ("full, patches", "pretrain", "patches", ("71.2 / 64.4", "41.4 / 24.3", "–")),
    "both": ("full, regions and patches", "pretrain", "both", ("78.4 / 72.4", "55.9 / 38.4", "41.3 / 34.2")),
}


def main(
    output: Output,
    backbone: Annotated[Path, typer.Option(help="Vision model whose features are the regions of an image.")] = Path(
        "runs/backbone"
    ),
    seeds: Seeds = "1,2,3",
    rows: Rows = "",
    tasks: Annotated[str, typer.Option(help="Comma-separated list.")] = ",".join(TASKS),
    steps: Annotated[
        int | None, typer.Option(help="Number of pre-training steps; default: that of the recipe.")
    ] = None,
    settings: Changes = None,
    only_table: OnlyTable = False,
) -> None:
    """Train the rows and print the table."""
    names, given = chosen(rows, ROWS), [f"backbone={backbone}", *(settings or [])]
    more = [] if steps is None else [f"training.max_steps={steps}"]
    pretraining = Experiment(output / "pretrain", "emoji/rc3/pretrain:{}", [*given, *more])

    def start(row: str, seed: int) -> list[str]:
        _, trained, visual, _ = ROWS[row]
        learned = f"model.from_pretrained={pretraining.folder(trained, seed)}"
        return [*given, learned, f"model.overrides.visual={visual}"]

    fine_tuning = {
        task: Experiment(
            output / task, "emoji/rc3/entailment" + f":{task}" * (task != "entailment"), start, TASKS[task][0]
        )
        for task in tasks.split(",")
    }
    for seed in [] if only_table else numbers(seeds):
        for row in names:
            pretraining.train(ROWS[row][1], seed)
            for experiment in fine_tuning.values():
                experiment.train(row, seed)
    print(table(pretraining, fine_tuning, names, numbers(seeds)))


def table(pretraining: Experiment, fine_tuning: dict[str, Experiment], rows: list[str], seeds: list[int]) -> str:
    """For each test set, English / the mean of the other languages in percent: mean ± deviation over seeds."""
    reports = {task: {row: each.reports(row, seeds) for row in rows} for task, each in fine_tuning.items()}
    of_rows = [found for by_row in reports.values() for found in by_row.values()]
    tests = dict.fromkeys(test for found in of_rows for report in found for test in report)
    scores = [heading for task in fine_tuning for heading in TASKS[task]]
    tables = []
    for test in tests:
        lines = []
        for row in rows:
            if not any(by_row[row] for by_row in reports.values()):
                continue
            title, trained, _, paper = ROWS[row]
            cells = [title, spread_of(matching_accuracies(pretraining, trained, seeds))]
            for task, by_row in reports.items():
                found = [report[test] for report in by_row[row]]
                cells += [both(found, score) for score in TASKS[task].values()]
            lines.append([*cells, *paper])
        body = markdown(["row", "ITM in pre-training", *scores, *PAPER], lines)
        tables.append(f"{test}, English / other languages\n\n{body}")
    return "\n\n".join(tables)


def both(found: list[dict[str, dict[str, float]]], score: Score) -> str:
    """Of the results of several seeds by language."""
    native = [score(results[NATIVE]) for results in found]
    others = [fmean(score(each) for language, each in results.items() if language != NATIVE) for results in found]
    return f"{spread_of(native)} / {spread_of(others)}"


def matching_accuracies(pretraining: Experiment, row: str, seeds: list[int]) -> list[float]:
    """Image-text matching in percent, on the images of the vendor that was held out, by the end of a run."""
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

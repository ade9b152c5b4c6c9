"""SMALR's family and LIWE on photographs with captions in several languages, by what they read: the captions that
people wrote; and with them the paper's translations of them (section 7.1, table 4). And a search by translations.

    python benchmarks/photo_translations.py --train TRAIN --others TEST VALIDATION --translations TRANSLATIONS \
        --output translations.jsonl
    python benchmarks/photo_smalr.py --train TRAIN --test TEST --validation VALIDATION \
        --translations translations.jsonl --feature-size 1280 --output runs/photo-smalr

TRAIN, TEST and VALIDATION are folders of features with captions, such as `babelens features` writes; with
`--backbone`, of photographs. Numbers are mean recall in percent on TEST (R@1, 5 and 10 in both directions); mean ±
deviation over the seeds. CLC-C is fitted on VALIDATION. Runs that are there are not repeated.
"""

import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rows import Changes, Experiment, OnlyTable, Output, Rows, Seeds, chosen, markdown, numbers, spread

LANGUAGES = ["en", "de", "fr", "cs"]
TABLE_4 = {"en": ["de", "fr", "cs"], "de": ["en"], "fr": ["en"], "cs": ["en"]}
MULE = {"specific_words": None, "latent_tokens": 0, "mask_weight": 0.0, "vector_weight": 5.0e-7}
# Row -> its title, and what it changes of the model of `photos/smalr`; LIWE has a recipe of its own.
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "smalr": ("SMALR", {}),
    "hem": ("HEM", {"mask_weight": 0.0}),
    "la": ("LA", {"specific_words": 0, "mask_weight": 0.0}),
    "mule": ("MULE", MULE),
    "par-embn": ("PAR-EmbN", {**MULE, "language_branches": True, "adversarial_weight": 0.0}),
    "embn": ("EmbN, English alone", {**MULE, "adversarial_weight": 0.0}),
    "liwe": ("S-LIWE", {}),
}
SINGLE_STAGE = ("par-embn", "embn", "liwe")
TEXTS = ("people", "augmented")
CONSISTENCY = {"clc_a": "CLC-A", "clc_c": "CLC-C"}


def experiment_of(row: str, texts: str, given: dict[str, Any]) -> Experiment:
    """The runs of a row on the captions of people, or on the augmented ones; `given` are this script's options."""
    languages = ["en"] if row == "embn" else LANGUAGES
    task = {"source": given["train"], "languages": languages}
    if texts == "augmented":
        translator = {"model": given["translations"], "everywhere": True}
        task["translate"] = [{**translator, "from": source, "to": to} for source, to in TABLE_4.items()]
    tasks = ["image_text"] if row in SINGLE_STAGE else ["text_text", "image_text"]
    sizes = {} if row == "liwe" else {"hidden_size": 128}
    if given["feature_size"]:
        sizes["image_feature_size"] = given["feature_size"]
    settings = {
        "backbone": given["backbone"],
        "train": dict.fromkeys(tasks, task),
        "validation": {"source": given["test"]},
        "training.eval_languages": languages,
        "training.sentences_per_image": 2,
        "training.per_device_train_batch_size": 64,
        "words.max_text_length": 20,
        **{f"model.overrides.{name}": value for name, value in {**ROWS[row][1], **sizes}.items()},
    }
    if row in SINGLE_STAGE:
        settings["stages"] = [{"name": row, "tasks": tasks, "training": {"max_steps": given["steps"]}}]
    else:
        settings["stages.smalr.training.max_steps"] = given["steps"]
    recipe = "photos/liwe" if row == "liwe" else "photos/smalr"
    sets = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
    return Experiment(given["output"] / texts, recipe, [*sets, *given["settings"]], report_name="validation.json")


def consistent(run: Path, given: dict[str, Any]) -> dict[str, Any]:
    """What `babelens evaluate --consistency` finds by translated queries, which is kept beside the run."""
    file = run / "evaluation" / "consistency.json"
    if not file.is_file():
        command = [sys.executable, "-m", "babelens", "evaluate", "captions", str(run), "--data", given["test"]]
        command += ["--consistency", "--consistency-translator", given["translations"]]
        command += ["--languages", ",".join(LANGUAGES)]  # CLC-C is fitted on queries in the first
        command += ["--fit-data", given["validation"], "--output", str(file)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def mean_recalls(report: dict[str, Any] | None) -> dict[str, float]:
    """Of each language, and their mean."""
    found = {tag: each["mean_recall"] for tag, each in (report or {}).items()}
    return found | {"mean": fmean(found.values())} if found else {}


def recall_table(found: dict[tuple[str, str], list[dict[str, float]]], rows: list[str]) -> str:
    """A line for each row and what it read, and how much more the second finds than the first, seed by seed."""
    columns = ["mean", *LANGUAGES]
    lines = []
    for row in rows:
        read = [texts for texts in TEXTS if found.get((row, texts))]
        for texts in read:
            cells = [[run[column] for run in found[row, texts] if column in run] for column in columns]
            lines.append([ROWS[row][0], texts, *(spread(each) if each else "" for each in cells)])
        if len(read) == len(TEXTS):
            pairs = list(zip(*(found[row, texts] for texts in TEXTS), strict=False))
            cells = [
                [after[column] - before[column] for before, after in pairs if column in before] for column in columns
            ]
            lines.append(["", "difference", *(spread(each) if each else "" for each in cells)])
    return markdown(["row", "captions", *columns], lines)


def consistency_table(searched: dict[tuple[str, str], list[dict[str, Any]]]) -> str:
    """What CLC adds to the model alone, in points of mean recall."""
    columns = ["mean", *LANGUAGES]
    lines = []
    for (row, texts), runs in searched.items():
        for kind, title in CONSISTENCY.items() if runs else ():
            gains = []
            for run in runs:
                [joined] = run["consistency"][kind]["recalls"].values()
                alone, together = mean_recalls(run["recalls"]), mean_recalls(joined)
                gains.append({column: together[column] - alone[column] for column in columns})
            lines.append(
                [f"{ROWS[row][0]}, {title}", texts, *(spread([g[column] for g in gains]) for column in columns)]
            )
    return markdown(["row", "captions", *columns], lines)


def main(
    train: Annotated[str, typer.Option(help="Images with captions to train on.")],
    test: Annotated[str, typer.Option(help="Others, to search.")],
    validation: Annotated[str, typer.Option(help="Others, on which CLC-C is fitted.")],
    translations: Annotated[str, typer.Option(help="The table that photo_translations.py writes.")],
    backbone: Annotated[str | None, typer.Option(help="A vision model, for photographs.")] = None,
    feature_size: Annotated[int | None, typer.Option(help="The width of features.")] = None,
    steps: Annotated[int, typer.Option(help="Steps of the last stage.")] = 300,
    seeds: Seeds = "1,2,3",
    rows: Rows = "",
    texts: Annotated[str, typer.Option(help="What is read: people, augmented or, by default, each.")] = "",
    consistency: Annotated[str, typer.Option(help="Rows that are also searched by translated queries.")] = "smalr,hem",
    output: Output = Path("runs/photo-smalr"),
    settings: Changes = None,
    only_table: OnlyTable = False,
) -> None:
    """Print a table of the rows by what they read, and one of CLC."""
    given = {**locals(), "settings": settings or []}
    names, read = chosen(rows, ROWS), chosen(texts, TEXTS)
    experiments = {(row, each): experiment_of(row, each, given) for row in names for each in read}
    for seed in () if only_table else numbers(seeds):
        for row in names:
            for each in read:
                experiments[row, each].train(row, seed)
    found = {
        key: [recall for seed in numbers(seeds) if (recall := mean_recalls(experiment.report(key[0], seed)))]
        for key, experiment in experiments.items()
    }
    print(recall_table(found, names))
    searched = {}
    for (row, each), experiment in experiments.items():
        if row in chosen(consistency, ROWS):
            runs = [experiment.folder(row, seed) for seed in numbers(seeds) if experiment.report(row, seed)]
            searched[row, each] = [consistent(run, given) for run in runs]
    print(f"\n{consistency_table(searched)}")


if __name__ == "__main__":
    typer.run(main)

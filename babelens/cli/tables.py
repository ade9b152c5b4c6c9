"""Prints results as tables on the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from ..evaluation.emoji import GROUP_TITLES, TITLES
from ..evaluation.results import Results
from ..model_cards.card_text import publishable
from ..model_cards.facts import RECALLS
from ..trainers.rc3_tasks import Rc3Task
from ..training.rc3_tasks import Rc3TaskRecipe, TaskReport
from ..training.run import RecipeRun
from ..utils.redaction import typed_command
from .common import cells, plain_console, results_table


def new_results() -> Results:
    """Results of the command that is running."""
    return Results("", str(publishable(typed_command("babelens"))))


def print_run(run: RecipeRun, report: dict[str, Any] | None, console: Console) -> None:
    """Prints the results of a run as tables, the highest rate of unknown tokens, and where everything was written."""
    task = run.recipe.rc3_task if isinstance(run.recipe, Rc3TaskRecipe) else None
    if report and task:
        print_task_report(report, task, console, trained=run.data.image_languages)
    elif report:
        print_emoji_report(report, console)
    if run.reporting.validated:
        print_recalls("validation data", run.reporting.validated)
    rates = run.reporting.unknown_rates
    if task is None and rates:
        language, rate = max(rates.items(), key=lambda item: item[1])
        console.print(f"[UNK] in {len(rates)} languages: at most {rate} % of the tokens ({language})")
    console.print(f"Model and card: {run.output}")


def print_recalls(data: str, results: Mapping[str, Mapping[str, float]]) -> None:
    """Prints the results of `evaluate_retrieval` on some data, a row for each language."""
    headings = ("t→i\nR@1", "\nR@5", "\nR@10", "i→t\nR@1", "\nR@5", "\nR@10", "mean\nrecall", "\nimages", "\ntexts")
    table = results_table("language", *headings, title=f"{data}, recall in %")
    for language, numbers in results.items():
        table.add_row(language, *cells(numbers[name] for name in (*RECALLS, "n_images", "n_texts")))
    console = plain_console()
    console.print(table)
    for language, numbers in results.items():
        if "n_equal_texts" in numbers:
            console.print(
                f"{language}: {numbers['n_equal_texts']:,} captions also belong to other images, word for word; "
                f"counted as correct for all of them, mean recall {numbers['mean_recall_equal_texts']:.1f}"
            )


def print_translate_test(data: str, compared: Mapping[str, Mapping[str, Any]], to: str) -> None:
    """Prints the result of `evaluate_translate_test`: recall without and with translation."""
    headings = ("t→i R@10\nas it is", "\ntranslated", "mean recall\nas it is", "\ntranslated", "\ngain")
    table = results_table("language", *headings, title=f"{data}, recall in %, translated into {to}")
    for language, each in compared.items():
        sides = [each[way] or {} for way in ("untranslated", "translated")]
        shown = cells(side.get(name) for name in ("t2i_r10", "mean_recall") for side in sides)
        table.add_row(language, *shown, f"{each['gain']['mean_recall']:+.1f}" if "gain" in each else "")
    console = plain_console()
    console.print(table)
    for language, each in compared.items():
        if count := each.get("n_empty"):
            console.print(f"{language}: {count:,} captions have an empty translation; they search untranslated")


def print_consistency(joined: Mapping[str, Any]) -> None:
    """Prints the result of `compare_consistency`: the recalls of CLC-A and CLC-C, and CLC-C's weights."""
    titles = {"clc_a": "CLC-A, the mean of the scores", "clc_c": "CLC-C, joined by learned weights"}
    for kind, result in joined.items():
        for data, recalls in result["recalls"].items():
            print_recalls(f"{titles[kind]}: {data}", recalls)
    console = plain_console()
    if joined["clc_a"]["translations"] == "captions":
        console.print(
            "The captions of an image in the other languages served as translations. If people wrote them "
            "independently, they hold more information than real translations would (--translator)."
        )
    if "clc_c" not in joined:
        console.print("CLC-C was left out: it needs captions for fitting.")
        return
    learned = joined["clc_c"]
    table = results_table("", *learned["importances"], title=f"CLC-C, {learned['parameters']} weights")
    table.add_row("share of the score", *(f"{share:.3f}" for share in learned["importances"].values()), style="bold")
    console.print(table)
    before, after = learned["losses"][0], learned["losses"][-1]
    console.print(
        f"Loss on the captions in {learned['fitted_in']}, with both scores scaled to CLC-A's standard deviation: "
        f"{before:.4f} (CLC-A), {after:.4f} (CLC-C)."
    )


def print_task_report(
    report: TaskReport, task: Rc3Task, console: Console | None = None, *, trained: list[str] | None = None
) -> None:
    """Prints a table for each test set, with the mean over the languages that are not among `trained`."""
    console = console or plain_console()
    for name, results in report.items():
        counts = [key for key in next(iter(results.values())) if key.startswith("n")]
        table = results_table("language", *task.metrics, *counts, title=f"{task.name}, {name}")
        for language, numbers in results.items():
            table.add_row(language, *cells(numbers[name] for name in (*task.metrics, *counts)))
        unseen = [numbers for language, numbers in results.items() if language not in (trained or [])]
        if trained and 1 < len(unseen) < len(results):
            table.add_section()
            means = (sum(numbers[metric] for numbers in unseen) / len(unseen) for metric in task.metrics)
            table.add_row("mean of the others", *cells(means))
        console.print(table)


def print_emoji_report(report: dict[str, Any], console: Console | None = None) -> None:
    """Prints the report of `EmojiBenchmark` as one table: the means of each language group, and each language."""
    headings = ("t→i\nR@1", "\nR@5", "\nR@10", "i→t\nR@10", "mean\nrecall", "flags\nR@10", "others\nR@10")
    table = results_table("question\nlanguages", *headings, title="Emoji benchmark, recall in %")
    for name, part in report.items():
        for group, answer in part["groups"].items():
            # Unseen concepts are question 1 in all groups of languages.
            number = 1 if name == "unseen_concepts" else 2 + list(GROUP_TITLES).index(group)
            table.add_row(f"{number} {TITLES[name]} ({part['vendor']})", style="bold")
            table.add_row(f"  {GROUP_TITLES[group]}", *_emoji_cells(answer["mean"]), style="bold")
            for language, numbers in answer["languages"].items():
                table.add_row(f"  {language}", *_emoji_cells(numbers))
        chance = cells(part["chance"].values())
        table.add_row(f"  chance among {part['n_images']}", *chance, style="dim", end_section=True)
    (console or plain_console()).print(table)


def _emoji_cells(numbers: dict[str, Any]) -> list[str]:
    names = ("t2i_r1", "t2i_r5", "t2i_r10", "i2t_r10", "mean_recall")
    parts = (numbers.get(part, {}).get("t2i_r10") for part in ("flags", "others"))
    return cells([*(numbers[name] for name in names), *parts])

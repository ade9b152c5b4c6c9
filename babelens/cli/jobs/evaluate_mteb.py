"""mteb's tasks, for `babelens evaluate mteb`."""

from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ...configuration.errors import ModelFolderError
from ...evaluation.mteb_models import mteb_model
from ...evaluation.mteb_runs import SHOWN, MtebScore, eval_result_entries, evaluate_mteb, model_index, mteb_tasks
from ...model_cards.published_results import add_results, check_card
from ...workflows.reporting import EVALUATION
from ..console import plain_console
from .models import load_retrieval_embedder
from .results import show_results


def evaluate_on_mteb(
    model: str,
    tasks: list[str],
    languages: list[str] | None,
    *,
    text_language: str | None,
    text_task: str | None,
    output: Path | None,
    card: bool,
    as_json: bool,
    **loading: Any,
) -> None:
    """Measures a model on tasks of mteb and shows the scores; arguments as the command's options.

    Raises:
        typer.BadParameter: for `card` without a card in the model's folder.
    """
    if card:
        try:
            check_card(model)
        except ModelFolderError as error:
            raise typer.BadParameter(str(error), param_hint="--card") from error
    chosen = mteb_tasks(tasks, languages)
    embedder = load_retrieval_embedder(model, **loading)
    judged = mteb_model(embedder, language=text_language, text_task=text_task, source=model, **loading)
    if output is None and Path(model).is_dir():
        output = Path(model) / EVALUATION / "mteb"
    scores = evaluate_mteb(judged, chosen, cache=output, show_progress=not as_json)
    if card:
        add_results(model, model_index(scores), eval_result_entries(scores))
    show_results(_by_task(scores), None, as_json, lambda: _print(scores, output))


def _by_task(scores: list[MtebScore]) -> dict[str, Any]:
    """All of mteb's metrics by task, split and subset, with the description of each task."""
    results: dict[str, Any] = {}
    for score in scores:
        of_task = results.setdefault(score.task, {"main_metric": score.main_metric, "splits": {}})
        of_split = of_task["splits"].setdefault(score.split, {})
        of_split[score.subset] = {"languages": score.languages, **score.scores}
    return results


def _print(scores: list[MtebScore], output: Path | None) -> None:
    """Prints a table for each task, a row for each subset."""
    console = plain_console()
    for name in dict.fromkeys(score.task for score in scores):
        of_task = [score for score in scores if score.task == name]
        metrics = [metric for metric in (of_task[0].main_metric, *SHOWN) if metric in of_task[0].shown()]
        table = Table(box=SIMPLE_HEAD, title=f"{name}, in %", title_justify="left")
        for heading in ("subset", "split", "languages"):
            table.add_column(heading)
        for metric in metrics:
            table.add_column(metric, justify="right")
        for score in of_task:
            values = score.shown()
            cells = (f"{values[metric]:.1f}" for metric in metrics)
            table.add_row(score.subset, score.split, ", ".join(score.languages), *cells)
        console.print(table)
    if output is not None:
        console.print(f"All of mteb's metrics: {output}")

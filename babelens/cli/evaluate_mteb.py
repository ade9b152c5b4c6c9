"""`babelens evaluate mteb`: evaluates on tasks of mteb, the embedding benchmark."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..utils.errors import ModelFolderError
from .common import (
    Languages,
    Model,
    TrustRemoteCode,
    begin_work,
    plain_console,
    results_table,
    split_tags,
    tags_of,
)

if TYPE_CHECKING:
    from ..evaluation.mteb import MtebScore


def mteb(
    model: Model,
    tasks: Annotated[
        str,
        typer.Option(
            help="The tasks, by mteb's names separated by commas: `XM3600T2IRetrieval`, `STS17`, `Tatoeba`, ….",
            metavar="TASKS",
        ),
    ],
    languages: Languages = None,
    text_prompt: Annotated[
        str | None,
        typer.Option(help="The prompt of a text-only encoder, such as `query: ` for E5."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="The folder in which mteb keeps its results; existing results are not measured again.",
            file_okay=False,
            show_default="`evaluation/mteb` in the model's folder",
        ),
    ] = None,
    card: Annotated[
        bool,
        typer.Option("--card", help="Add the results to the `model-index` of the card in the model's folder."),
    ] = False,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Measure a model on tasks of mteb, on which embedding models are compared.

    The processor gets the language of each subset. mteb fetches its data from the Hub. The command needs the package
    mteb: `pip install mteb`.
    """
    names, tags = split_tags(tasks), tags_of(languages)
    if not names:
        raise typer.BadParameter(f"{tasks!r} names no task", param_hint="--tasks")
    begin_work()
    from ..evaluation.mteb import evaluate_mteb, model_index, mteb_model, mteb_tasks
    from ..inference.embedder import Embedder
    from ..model_cards.result_tables import add_results, check_card

    if card:
        try:
            check_card(model)
        except ModelFolderError as error:
            raise typer.BadParameter(str(error), param_hint="--card") from error
    chosen = mteb_tasks(names, tags)
    loading: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    loading |= {} if text_prompt is None else {"text_prompt": text_prompt}
    embedder = Embedder.from_pretrained(model, **loading)
    judged = mteb_model(embedder, source=model, **loading)
    if output is None and Path(model).is_dir():
        output = Path(model) / "evaluation" / "mteb"
    scores = evaluate_mteb(judged, chosen, cache=output, show_progress=True)
    if card:
        add_results(model, model_index(scores))
    _print(scores, output)


def _print(scores: "list[MtebScore]", output: Path | None) -> None:
    """Prints a table for each task, a row for each subset."""
    from ..evaluation.mteb import SHOWN

    console = plain_console()
    for name in dict.fromkeys(score.task for score in scores):
        of_task = [score for score in scores if score.task == name]
        metrics = [metric for metric in (of_task[0].main_metric, *SHOWN) if metric in of_task[0].shown()]
        table = results_table("subset", "split", "languages", *metrics, title=f"{name}, in %", names=3)
        for score in of_task:
            values = score.shown()
            cells = (f"{values[metric]:.1f}" for metric in metrics)
            table.add_row(score.subset, score.split, ", ".join(score.languages), *cells)
        console.print(table)
    if output is not None:
        console.print(f"All of mteb's metrics: {output}")

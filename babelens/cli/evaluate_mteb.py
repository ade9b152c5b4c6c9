"""`babelens evaluate mteb`: tasks of mteb, the benchmark of embeddings."""

from pathlib import Path
from typing import Annotated

import typer

from .options import (
    AsJson,
    BatchSize,
    Model,
    TextPooling,
    TextPrompt,
    TextTask,
    TrustRemoteCode,
    of_text_encoders,
    split_tags,
)


def mteb(
    model: Model,
    tasks: Annotated[
        str,
        typer.Option(
            "--mteb",
            help="The tasks, by mteb's names separated by commas: `XM3600T2IRetrieval`, `STS17`, `Tatoeba`, ….",
            metavar="TASKS",
        ),
    ],
    languages: Annotated[
        str | None,
        typer.Option(
            help="Measure only the subsets that have one of these languages: tags separated by commas, such as "
            "`uk,sw`. Without this option, all subsets."
        ),
    ] = None,
    text_language: Annotated[
        str | None,
        typer.Option(
            help="The language of all texts, for tasks that do not tell it. By default it is that of the subset, "
            "and a task that leaves it open is refused.",
            metavar="TAG",
        ),
    ] = None,
    task: TextTask = None,
    text_pooling: TextPooling = None,
    text_prompt: TextPrompt = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="The folder in which mteb keeps its results; what is there is not measured again. By default "
            "`evaluation/mteb` in the model's folder; for a model on the Hub nothing is kept.",
            file_okay=False,
        ),
    ] = None,
    card: Annotated[
        bool,
        typer.Option(
            "--card",
            help="Add the results to the card in the model's folder, as the Hub reads them: `model-index` in its "
            "README.md, and `.eval_results`.",
        ),
    ] = False,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Measure a model on tasks of mteb, on which embedding models are compared.

    The processor is told the language of each subset. mteb fetches its data from the Hub. It needs the package mteb:
    `pip install 'babelens[mteb]'`.
    """
    names = split_tags(tasks)
    tags = None if languages is None else split_tags(languages)
    if not names:
        raise typer.BadParameter(f"{tasks!r} names no task", param_hint="--mteb")
    if tags == []:
        raise typer.BadParameter(f"{languages!r} names no language", param_hint="--languages")
    from .jobs.evaluate_mteb import evaluate_on_mteb

    evaluate_on_mteb(
        model,
        names,
        tags,
        text_language=text_language,
        text_task=task,
        output=output,
        card=card,
        batch_size=batch_size,
        trust_remote_code=trust_remote_code,
        as_json=as_json,
        **of_text_encoders(text_pooling, text_prompt),
    )

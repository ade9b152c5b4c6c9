"""`babelens evaluate task`: a model on the test data of the task that it was fine-tuned on."""

from typing import Annotated

import typer

from .options import AsJson, BatchSize, Model, Report, ResultsFile, TrustRemoteCode


def task(
    model: Model,
    recipe: Annotated[
        str,
        typer.Option(
            help="The recipe whose `test` data are used: a file, or the name of one that comes with babelens, such "
            "as `rc3/xvnli`."
        ),
    ],
    output: ResultsFile = None,
    report: Report = True,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Measure a model on the task that it was fine-tuned on, by the task's own metrics.

    The tasks of RC3 are visual entailment, visual question answering, visual reasoning, image-text retrieval and
    translation. A recipe of fine-tuning names the task and its test data.
    """
    from .jobs.evaluate_task import evaluate_fine_tuned

    evaluate_fine_tuned(
        model,
        recipe,
        batch_size=batch_size,
        trust_remote_code=trust_remote_code,
        output=output,
        report=report,
        as_json=as_json,
    )

"""`babelens evaluate task`: a model on the test data of the task that it was fine-tuned on."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..configuration.errors import ModelKindError
from .options import AsJson, BatchSize, Model, Report, ResultsFile, TrustRemoteCode
from .starting import begin_work

if TYPE_CHECKING:
    from ..evaluation.query_ranks import QueryRanks


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
    begin_work()

    evaluate_fine_tuned(
        model,
        recipe,
        batch_size=batch_size,
        trust_remote_code=trust_remote_code,
        output=output,
        report=report,
        as_json=as_json,
    )


def evaluate_fine_tuned(
    model: str,
    recipe: str,
    *,
    batch_size: int,
    trust_remote_code: bool,
    output: Path | None,
    report: bool,
    as_json: bool,
) -> None:
    """Evaluates a model on a recipe's test data, and shows the results.

    Raises:
        typer.BadParameter: for a recipe without a task or test data, and a model that was not trained on the task.
    """
    from ..workflows.base import recipe_data
    from ..workflows.loading import load_recipe
    from ..workflows.rc3_tasks import Rc3TaskRecipe, evaluate_task
    from .tables import print_task_report, show_results

    loaded = load_recipe(recipe)
    if not isinstance(loaded, Rc3TaskRecipe) or not loaded.test:
        raise typer.BadParameter(f"{recipe} has no task with test data", param_hint="--recipe")
    tests = recipe_data(loaded).tests
    ranks: dict[str, QueryRanks] = {}
    code = {"trust_remote_code": trust_remote_code}
    try:
        results = evaluate_task(loaded, tests, model, batch_size=batch_size, ranks=ranks, **code)
    except ModelKindError as error:
        raise typer.BadParameter(str(error), param_hint="MODEL") from error
    show_results(
        results,
        output,
        as_json,
        lambda: print_task_report(results, loaded.rc3_task),
        ranks=ranks,
        report=report,
    )

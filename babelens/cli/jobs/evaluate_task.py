"""A fine-tuned model on the test data of a recipe, for `babelens evaluate task`."""

from pathlib import Path

import typer

from ...configuration.errors import ModelKindError
from ...evaluation.query_ranks import QueryRanks
from ...workflows.base import recipe_data
from ...workflows.loading import load_recipe
from ...workflows.rc3_tasks import Rc3TaskRecipe, evaluate_task
from .results import show_results
from .tables import print_task_report


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

"""A fine-tuned model on the test data of a recipe, for `babelens evaluate task`."""

from pathlib import Path

import typer

from ...workflows.base import recipe_run
from ...workflows.rc3_tasks import Rc3TaskRun
from ...workflows.recipe import load_recipe
from .results import show_results
from .tables import print_task_report


def evaluate_task(
    model: str, recipe: str, *, batch_size: int, trust_remote_code: bool, output: Path | None, as_json: bool
) -> None:
    """Evaluates a model on a recipe's test data, and shows the results.

    Raises:
        typer.BadParameter: for a recipe without a task or test data, and a model that was not trained on the task.
    """
    run = recipe_run(load_recipe(recipe), Path(model), command="")
    if not isinstance(run, Rc3TaskRun) or not run.recipe.test:
        raise typer.BadParameter(f"{recipe} has no task with test data", param_hint="--recipe")
    try:
        report = run.evaluate(model, batch_size=batch_size, trust_remote_code=trust_remote_code)
    except TypeError as error:
        raise typer.BadParameter(str(error), param_hint="MODEL") from error
    show_results(report, output, as_json, lambda: print_task_report(report, run.task))

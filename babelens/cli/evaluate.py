"""`babelens evaluate`: a command for each kind of evaluation, most in a module `evaluate_<name>.py`."""

from typing import TYPE_CHECKING, Annotated

import typer

from .common import Model, ResultsFile, TrustRemoteCode, begin_work
from .evaluate_benchmark import benchmark
from .evaluate_captions import captions
from .evaluate_classes import classes
from .evaluate_emoji import emoji
from .evaluate_mteb import mteb

if TYPE_CHECKING:
    from ..evaluation.ranking import QueryRanks


def task(
    model: Model,
    recipe: Annotated[
        str,
        typer.Option(help="The recipe whose `test` data are used: a file, or a name such as `rc3/xvnli`."),
    ],
    output: ResultsFile = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Measure a model on the task that it was fine-tuned on, by the task's own metrics.

    The tasks of RC3 are visual entailment, visual question answering, visual reasoning, image-text retrieval and
    translation. A fine-tuning recipe names the task and its test data.
    """
    begin_work()
    from ..training.rc3_tasks import Rc3TaskData, Rc3TaskRecipe, evaluate_task
    from ..training.schema import load_recipe
    from .tables import print_task_report, save_results

    loaded = load_recipe(recipe)
    if not isinstance(loaded, Rc3TaskRecipe) or not loaded.test:
        raise typer.BadParameter(f"{recipe} has no task with test data", param_hint="--recipe")
    ranks: dict[str, QueryRanks] = {}
    code = {"trust_remote_code": trust_remote_code}
    report = evaluate_task(loaded, Rc3TaskData(loaded).tests, model, ranks=ranks, **code)
    save_results(report, output, ranks=ranks)
    print_task_report(report, loaded.rc3_task)


evaluate = typer.Typer(no_args_is_help=True, help="Measure how well a model does, language by language.")
for job in (captions, classes, emoji, benchmark, mteb, task):
    evaluate.command()(job)

"""`babelens evaluate`: one job for each kind of evaluation, most in a module `evaluate_<job>.py`.

The job may be left out: `babelens evaluate MODEL --data photos` is `babelens evaluate captions MODEL --data photos`,
since --data is the key option of that job.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ..utils.errors import ModelKindError
from .evaluate_benchmark import benchmark
from .evaluate_captions import captions
from .evaluate_classes import classes
from .evaluate_emoji import emoji
from .evaluate_mteb import mteb
from .options import AsJson, BatchSize, Model, ResultsFile, TrustRemoteCode
from .starting import begin_work

if TYPE_CHECKING:
    from ..evaluation.query_ranks import QueryRanks

# ---- `babelens evaluate task`: a model on the test data of the task that it was fine-tuned on ----


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
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Measure a model on the task that it was fine-tuned on, by the task's own metrics.

    The tasks of RC3 are visual entailment, visual question answering, visual reasoning, image-text retrieval and
    translation. A recipe of fine-tuning names the task and its test data.
    """
    begin_work()
    from ..training.loading import load_recipe
    from ..training.rc3_tasks import Rc3TaskData, Rc3TaskRecipe, evaluate_task
    from .tables import print_task_report, show_results

    loaded = load_recipe(recipe)
    if not isinstance(loaded, Rc3TaskRecipe) or not loaded.test:
        raise typer.BadParameter(f"{recipe} has no task with test data", param_hint="--recipe")
    tests = Rc3TaskData(loaded).tests
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
        model=model,
        ranks=ranks,
    )


# ---- The jobs ----

Job = Callable[..., None]
# The jobs, with the option that asks for each where the job is left out; the first is done without any such option.
# Of several such options, the one of the first job counts.
JOBS: dict[Job, str | None] = {
    emoji: None,
    classes: "--labels",
    captions: "--data",
    benchmark: "--benchmark",
    mteb: "--mteb",
    task: "--recipe",
}

# `--data emoji` names the embedded benchmark instead of captioned images.
_EMOJI = emoji.__name__


class JobGroup(TyperGroup):
    """A group of commands that finds the command by the options when its name is left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = with_job(args)
        return super().parse_args(ctx, args)


def with_job(arguments: list[str]) -> list[str]:
    """The arguments of `evaluate` with the job that they ask for in front."""
    default, *others = JOBS
    rest, data = _without_option(arguments, "--data")
    if data == _EMOJI:
        arguments = rest
    for job in others:
        if any(argument.partition("=")[0] == JOBS[job] for argument in arguments):
            return [job.__name__, *arguments]
    return [default.__name__, *arguments]


def _without_option(arguments: list[str], option: str) -> tuple[list[str], str | None]:
    """The arguments without an option, and its value; `--option VALUE` or `--option=VALUE`."""
    for index, argument in enumerate(arguments):
        name, is_joined, value = argument.partition("=")
        if name == option and is_joined:
            return arguments[:index] + arguments[index + 1 :], value
        if argument == option and index + 1 < len(arguments):
            return arguments[:index] + arguments[index + 2 :], arguments[index + 1]
    return arguments, None


_by_option = ", ".join(f"with {option} it is `{job.__name__}`" for job, option in JOBS.items() if option)

evaluate = typer.Typer(
    cls=JobGroup,
    no_args_is_help=True,
    help=f"""Measure how well a model does, language by language.

    Each job below has arguments and a help of its own: `babelens evaluate captions --help`. The job may be left out:
    {_by_option}, and else (and with `--data emoji`) it is `{_EMOJI}`. A folder that is called as a job is written as
    a path: `./emoji`.
    """,
)
for job in JOBS:
    evaluate.command(rich_help_panel="Jobs")(job)

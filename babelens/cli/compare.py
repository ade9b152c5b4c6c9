"""`babelens compare`: the results of runs side by side, or of models on the same captioned images."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from .options import CAPTIONED_IMAGES, BatchSize, OnlyCaptioned, Protocol, Split, TrustRemoteCode, split_tags

# What a table with intervals shows where --metrics is left out: all seven metrics would not fit into a terminal.
_SHOWN = ["t2i_r1", "i2t_r1", "mean_recall"]
_MODELS = "Models on captioned images"
_OF_RUNS = ("runs", "metrics", "style")


def compare(
    context: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUNS...",
            help="Folders of runs, folders with a run for each seed (`babelens train --seeds`), or files that "
            "`babelens evaluate --output` wrote. With --data: models, as folders or names on the Hugging Face Hub; "
            "any dual encoder of babelens or transformers, and adapters. The others are compared with the first.",
        ),
    ],
    metrics: Annotated[
        str | None,
        typer.Option(
            help="The metrics to show, separated by commas, such as `t2i_r10,mean_recall`. Without this option, all; "
            f"with --data, {', '.join(_SHOWN)}."
        ),
    ] = None,
    style: Annotated[
        Literal["table", "md", "csv", "json"],
        typer.Option("--format", help="A table for the terminal or for Markdown, or every number as CSV or JSON."),
    ] = "table",
    data: Annotated[
        str | None,
        typer.Option(
            help=f"Evaluate RUNS, which are models, on these images with captions: {CAPTIONED_IMAGES}.",
            rich_help_panel=_MODELS,
        ),
    ] = None,
    languages: Annotated[
        str | None,
        typer.Option(
            help="The languages to compare, separated by commas. Without this option, all languages of the captions.",
            rich_help_panel=_MODELS,
        ),
    ] = None,
    split: Split = None,
    protocol: Protocol = "standard",
    only_captioned: OnlyCaptioned = False,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Compare runs: mean ± standard deviation over seeds, for each test set, language and metric.

    Stars mark differences to the first of RUNS that are larger than chance, by the paired bootstrap: images are drawn
    anew with all of their texts, the same for both. It needs the ranks of the queries, which `train` and `evaluate
    --output` keep beside their results, and runs that were evaluated on the same queries.

    With --data, models are evaluated on the same captions one after the other, as by `babelens evaluate captions`,
    and each difference is shown with its interval of 95 %.
    """
    names = None if metrics is None else split_tags(metrics)
    if names == []:
        raise typer.BadParameter(f"{metrics!r} names no metric", param_hint="--metrics")
    if data is None:
        _check_no_models(context, runs)
        from .jobs.compare import compare_runs

        compare_runs([Path(run) for run in runs], names, style)
        return
    tags = None if languages is None else split_tags(languages)
    if tags == []:
        raise typer.BadParameter(f"{languages!r} names no language", param_hint="--languages")
    from .jobs.compare_models import compare_models

    compare_models(
        runs,
        data,
        tags,
        names or _SHOWN,
        style,
        split=split,
        protocol=protocol,
        only_captioned=only_captioned,
        batch_size=batch_size,
        trust_remote_code=trust_remote_code,
    )


def _check_no_models(context: typer.Context, runs: list[str]) -> None:
    """Checks the arguments of a comparison of runs.

    Raises:
        typer.BadParameter: for a run that is not there, and an option about models.
    """
    for name in context.params:
        given = context.get_parameter_source(name)
        if name not in _OF_RUNS and given is not None and given.name == "COMMANDLINE":
            raise typer.BadParameter(
                "it is about models that are evaluated: give --data", param_hint=f"--{name.replace('_', '-')}"
            )
    for run in runs:
        if not Path(run).exists():
            raise typer.BadParameter(
                f"Path {run!r} does not exist. To compare models on captioned images, give --data", param_hint="RUNS"
            )

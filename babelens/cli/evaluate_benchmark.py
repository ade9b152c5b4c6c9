"""`babelens evaluate benchmark`: a published retrieval benchmark by its own protocol."""

from pathlib import Path
from typing import Annotated

import typer

from ..configuration.errors import BenchmarkError
from ..data.benchmarks.catalog import find_benchmark
from .options import AsJson, BatchSize, Model, ResultsFile, TrustRemoteCode, split_tags


def benchmark(
    model: Model,
    name: Annotated[
        str,
        typer.Option(
            "--benchmark", metavar="NAME", help="The benchmark, such as `xtd`: `babelens benchmarks` lists them all."
        ),
    ],
    root: Annotated[
        Path,
        typer.Option(
            help="The folder with the files of the benchmark, in the layout in which they were published: `babelens "
            "benchmarks NAME` shows it.",
            exists=True,
            file_okay=False,
        ),
    ],
    languages: Annotated[
        str | None,
        typer.Option(
            help="The languages to evaluate: tags separated by commas, such as `de,ko`. Without this option, all "
            "languages of the benchmark."
        ),
    ] = None,
    output: ResultsFile = None,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Measure a model on a published benchmark, by the benchmark's own protocol, beside the figures of papers.

    The files are read as they were published; nothing is fetched. Recalls are in percent.
    """
    tags = None if languages is None else split_tags(languages)
    if tags == []:
        raise typer.BadParameter(f"{languages!r} names no language", param_hint="--languages")
    try:
        known = find_benchmark(name)
    except BenchmarkError as error:
        raise typer.BadParameter(str(error), param_hint="--benchmark") from error
    try:
        known.chosen(tags)
    except BenchmarkError as error:
        raise typer.BadParameter(str(error), param_hint="--languages") from error
    from .jobs.evaluate_benchmark import evaluate_benchmark

    evaluate_benchmark(
        model,
        name,
        root,
        tags,
        batch_size=batch_size,
        trust_remote_code=trust_remote_code,
        output=output,
        as_json=as_json,
    )

"""The emoji benchmark, for `babelens evaluate emoji`."""

from pathlib import Path
from typing import Any

import typer

from ...configuration.errors import BabelensError
from ...configuration.files import atomic_file
from ...evaluation.emoji import EmojiBenchmark
from ...evaluation.emoji_consistency import emoji_consistency
from ...inference.embedder import Embedder
from ...workflows.run_results import CONSISTENCY
from .results import show_results
from .tables import print_consistency, print_emoji_report


def evaluate_emoji(
    embedder: Embedder,
    *,
    gallery: Path | None,
    output: Path | None,
    as_json: bool,
    report: bool = True,
    consistency: bool = False,
    **questions: Any,
) -> None:
    """Asks the embedder the benchmark's questions, shows the results, and draws a gallery.

    Args:
        embedder: the model.
        gallery: the PNG file to draw.
        output, as_json, report: as in `show_results`.
        consistency: whether to measure cross-lingual consistency as well; its results stand beside the questions', as
            `consistency`.
        questions: what `EmojiBenchmark` takes.
    """
    try:
        benchmark = EmojiBenchmark(embedder, **questions)
    except BabelensError as error:
        raise typer.BadParameter(str(error)) from error
    answers = benchmark.report()
    if gallery:
        with atomic_file(gallery) as path:
            benchmark.gallery().save(path, "PNG")
    joined: dict[str, Any] = {}
    if consistency:
        vendors = {name: questions[name] for name in ("test_vendor", "seen_vendor")}
        joined = emoji_consistency(embedder, benchmark.groups["image"], **vendors)

    def show() -> None:
        print_emoji_report(answers)
        if consistency:
            print_consistency(joined)

    both = answers | ({CONSISTENCY: joined} if consistency else {})
    rows = benchmark.gallery_rows() if output and report else ()
    show_results(
        both,
        output,
        as_json,
        show,
        ranks=benchmark.ranks(),
        gallery=rows,
        credits=benchmark.credits(),
        report=report,
    )

"""`babelens evaluate emoji`: the four questions of the embedded benchmark."""

from typing import Annotated, Any

import typer

from .common import Model, ResultsFile, TrustRemoteCode, begin_work


def emoji(
    model: Model,
    consistency: Annotated[
        bool,
        typer.Option(
            "--consistency",
            help="Also search with the names of an emoji in all languages with images together: cross-lingual "
            "consistency, CLC. CLC-C is fitted on the validation split.",
        ),
    ] = False,
    output: ResultsFile = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Measure retrieval on the emoji benchmark: recall at 1, 5 and 10 in percent, in both directions.

    The benchmark answers four questions. How well does MODEL find concepts that it never saw? And how well does it
    find images by a vendor that it never saw, with queries in languages that had images in training, in languages that
    had only translations, and in languages that were not in training? Flags are reported separately. The languages are
    as in the recipes `emoji/…`; the report of a recipe uses its own.
    """
    begin_work()
    from ..evaluation.consistency import emoji_consistency
    from ..evaluation.emoji import EmojiBenchmark
    from ..evaluation.results import CONSISTENCY
    from ..inference.embedder import Embedder
    from .tables import print_consistency, print_emoji_report, save_results

    embedder = Embedder.from_pretrained(model, trust_remote_code=trust_remote_code)
    benchmark = EmojiBenchmark(embedder)
    report: dict[str, Any] = benchmark.report()
    print_emoji_report(report)
    if consistency:
        report |= {CONSISTENCY: emoji_consistency(embedder, benchmark.groups["image"])}
        print_consistency(report[CONSISTENCY])
    save_results(report, output, ranks=benchmark.ranks())

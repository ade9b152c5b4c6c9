"""`babelens evaluate emoji`: the four questions of the embedded benchmark."""

from typing import Annotated, Any

import typer

from ..utils.defaults import BENCHMARK_LANGUAGES
from ..utils.errors import BabelensError
from .options import (
    CONSISTENCY,
    AsJson,
    BatchSize,
    Grid,
    Model,
    Regions,
    Rerank,
    ResultsFile,
    TopK,
    TrustRemoteCode,
    check_reranking,
    split_tags,
)
from .starting import begin_work

_TRAINING = "What the model was trained on"
_DEFAULTS = {group: ",".join(languages) for group, languages in BENCHMARK_LANGUAGES.items()}


def emoji(
    model: Model,
    output: ResultsFile = None,
    batch_size: BatchSize = 64,
    image_languages: Annotated[
        str, typer.Option(help="Languages that had images in training.", rich_help_panel=_TRAINING)
    ] = _DEFAULTS["image"],
    pair_languages: Annotated[
        str, typer.Option(help="Languages that had translation pairs only.", rich_help_panel=_TRAINING)
    ] = _DEFAULTS["pair"],
    unseen_languages: Annotated[
        str, typer.Option(help="Languages that were not in training.", rich_help_panel=_TRAINING)
    ] = _DEFAULTS["unseen"],
    test_vendor: Annotated[
        str, typer.Option(help="The vendor whose images were not in training.", rich_help_panel=_TRAINING)
    ] = "noto",
    seen_vendor: Annotated[
        str, typer.Option(help="A vendor whose images were in training.", rich_help_panel=_TRAINING)
    ] = "twemoji",
    consistency: Annotated[
        bool,
        typer.Option(
            "--consistency",
            help="Measure cross-lingual consistency, CLC, as well: the names of an emoji in all --image-languages "
            "search together. CLC-A averages their scores; CLC-C learns how to join them, from the validation split.",
            rich_help_panel=CONSISTENCY,
        ),
    ] = False,
    rerank: Rerank = None,
    top_k: TopK = 50,
    regions: Regions = None,
    grid: Grid = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Measure retrieval on the emoji benchmark: recall at 1, 5 and 10 in percent, in both directions.

    The benchmark answers four questions together. How well does MODEL find concepts that it never saw? And how well
    does it find images by a vendor that it never saw, when it is asked in languages that had images in training, in
    languages that had translations only, and in languages that were not in training? Flags are reported separately.

    With --rerank, a cross-encoder reorders the best --top-k candidates that MODEL finds for each query.
    """
    if rerank and consistency:
        raise typer.BadParameter("a cross-encoder reads one text, not its translations", param_hint="--consistency")
    check_reranking(rerank, regions, grid)
    begin_work()
    from ..evaluation.consistency import emoji_consistency
    from ..evaluation.emoji import EmojiBenchmark
    from ..training.run_results import CONSISTENCY as CONSISTENT
    from .inputs import load_reranker, load_retrieval_embedder
    from .tables import print_consistency, print_emoji_report, show_results

    code = {"batch_size": batch_size, "trust_remote_code": trust_remote_code}
    embedder = load_retrieval_embedder(model, **code)
    vendors: dict[str, Any] = {"test_vendor": test_vendor, "seen_vendor": seen_vendor}
    try:
        benchmark = EmojiBenchmark(
            embedder,
            image_languages=split_tags(image_languages),
            pair_languages=split_tags(pair_languages),
            unseen_languages=split_tags(unseen_languages),
            reranker=load_reranker(rerank, top_k, regions, grid, **code),
            **vendors,
        )
    except BabelensError as error:
        raise typer.BadParameter(str(error)) from error
    answers = benchmark.report()
    joined: dict[str, Any] = {}
    if consistency:
        joined = emoji_consistency(embedder, benchmark.groups["image"], **vendors)

    def show() -> None:
        print_emoji_report(answers)
        if consistency:
            print_consistency(joined)

    both = answers | ({CONSISTENT: joined} if consistency else {})
    show_results(both, output, as_json, show, model=model, ranks=benchmark.ranks())

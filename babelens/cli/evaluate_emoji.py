"""`babelens evaluate emoji`: the four questions of the embedded benchmark."""

from typing import Annotated, Any

import typer

from ..utils.defaults import BENCHMARK_LANGUAGES
from ..utils.errors import BabelensError
from .common import AsJson, BatchSize, Model, ResultsFile, TrustRemoteCode, begin_work, split_tags

_DEFAULTS = {group: ",".join(languages) for group, languages in BENCHMARK_LANGUAGES.items()}


def emoji(
    model: Model,
    image_languages: Annotated[str, typer.Option(help="Languages that had images in training.")] = _DEFAULTS["image"],
    pair_languages: Annotated[str, typer.Option(help="Languages that had translation pairs only.")] = _DEFAULTS[
        "pair"
    ],
    unseen_languages: Annotated[str, typer.Option(help="Languages that were not in training.")] = _DEFAULTS["unseen"],
    consistency: Annotated[
        bool,
        typer.Option(
            "--consistency",
            help="Also search with the names of an emoji in all --image-languages together: cross-lingual "
            "consistency, CLC. CLC-C is fitted on the validation split.",
        ),
    ] = False,
    output: ResultsFile = None,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Measure retrieval on the emoji benchmark: recall at 1, 5 and 10 in percent, in both directions.

    The benchmark answers four questions. How well does MODEL find concepts that it never saw? And how well does it
    find images by a vendor that it never saw, with queries in languages that had images in training, in languages that
    had only translations, and in languages that were not in training? Flags are reported separately.
    """
    begin_work()
    from ..evaluation.consistency import emoji_consistency
    from ..evaluation.emoji import EmojiBenchmark
    from ..evaluation.results import CONSISTENCY
    from ..inference.embedder import Embedder
    from .tables import print_consistency, print_emoji_report, show_results

    embedder = Embedder.from_pretrained(model, batch_size=batch_size, trust_remote_code=trust_remote_code)
    try:
        benchmark = EmojiBenchmark(
            embedder,
            image_languages=split_tags(image_languages),
            pair_languages=split_tags(pair_languages),
            unseen_languages=split_tags(unseen_languages),
        )
    except BabelensError as error:
        raise typer.BadParameter(str(error)) from error
    answers = benchmark.report()
    joined: dict[str, Any] = emoji_consistency(embedder, benchmark.groups["image"]) if consistency else {}

    def show() -> None:
        print_emoji_report(answers)
        if consistency:
            print_consistency(joined)

    both = answers | ({CONSISTENCY: joined} if consistency else {})
    show_results(both, output, as_json, show, ranks=benchmark.ranks())

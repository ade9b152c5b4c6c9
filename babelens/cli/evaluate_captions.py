"""`babelens evaluate captions`: retrieval between images and captions of any data set."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .common import (
    Languages,
    Model,
    ResultsFile,
    SourceOptions,
    Split,
    TrustRemoteCode,
    begin_work,
    tags_of,
)

if TYPE_CHECKING:
    from ..evaluation.ranking import QueryRanks
    from ..inference.translation import Translator

_ENGLISH = "en"  # the target language of translate-test


def captions(
    model: Model,
    data: Annotated[
        str,
        typer.Option(
            help="Images with captions: a folder, a file, a data set on the Hub, or the name of a published one."
        ),
    ],
    languages: Languages = None,
    split: Split = None,
    options: SourceOptions = None,
    protocol: Annotated[
        Literal["standard", "mla", "wit"],
        typer.Option(help="`mla`: images are ranked by their best caption. `wit`: each language has its own images."),
    ] = "standard",
    consistency: Annotated[
        bool,
        typer.Option("--consistency", help="Also search with each caption and its translations together: CLC."),
    ] = False,
    fit: Annotated[
        str | None,
        typer.Option(help="With --consistency: a split of --data, or a folder or file, on which CLC-C is fitted."),
    ] = None,
    translator: Annotated[
        str | None,
        typer.Option(
            help="A translation model or a file of translations, for CLC or, without --consistency, into English."
        ),
    ] = None,
    output: ResultsFile = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Measure retrieval on captioned images: recall at 1, 5 and 10 in percent, in both directions.

    In every language, each caption searches all images, and each image searches all captions of that language. If
    several images share a caption, word for word, a second score counts it as correct for all of them.
    """
    tags = tags_of(languages)
    if fit and not consistency:
        raise typer.BadParameter("--fit requires --consistency", param_hint="--fit")
    if fit and fit in (split, data):
        raise typer.BadParameter("CLC-C must be fitted and measured on different captions", param_hint="--fit")
    if consistency and protocol == "wit":
        raise typer.BadParameter(
            "--consistency does not support `wit`: captions in all languages search together", param_hint="--protocol"
        )
    begin_work()
    from ..data.corpus.corpus import languages_of
    from ..evaluation.consistency import compare_consistency
    from ..evaluation.ranking import CAPTIONS
    from ..evaluation.results import CONSISTENCY, RECALLS, TRANSLATE_TEST
    from ..evaluation.retrieval import evaluate_retrieval, evaluate_translate_test
    from ..inference.embedder import Embedder
    from .common import read_source
    from .tables import print_consistency, print_recalls, print_translate_test, save_results

    code: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    translates = None if translator is None else _translator(translator, not consistency, **code)
    embedder = Embedder.from_pretrained(model, **code)
    corpus = read_source(data, options, split=split)
    tags = list(languages_of(corpus)) if tags is None else tags
    ranks: dict[str, QueryRanks] = {}
    ranking = "standard" if protocol == "wit" else protocol
    measured: dict[str, Any] = {"protocol": ranking, "only_captioned": protocol == "wit", "ranks": ranks}
    report: dict[str, Any]
    if translates is not None and not consistency:
        compared = evaluate_translate_test(embedder, corpus, tags, translates, to=_ENGLISH, **measured)
        report = {RECALLS: {tag: each["untranslated"] for tag, each in compared.items() if each["untranslated"]}}
        report |= {TRANSLATE_TEST: compared}
        print_translate_test(data, compared, _ENGLISH)
    else:
        report = {RECALLS: evaluate_retrieval(embedder, corpus, tags, **measured)}
        print_recalls(data, report[RECALLS])
    if consistency:
        other = {"source": fit} if fit and Path(fit).exists() else {"source": data, "split": fit}
        fitted = read_source(options=options, **other) if fit else None
        given: dict[str, Any] = {"validation": fitted, "translator": translates, "protocol": ranking}
        report |= {CONSISTENCY: compare_consistency(embedder, {data: corpus}, tags, **given)}
        print_consistency(report[CONSISTENCY])
    by_test_set = {f"{CAPTIONS}/{tag}": each for tag, each in ranks.items()}
    save_results(report, output, dataset=data, split=split, ranks=by_test_set)


def _translator(given: str, into_english: bool, **code: Any) -> "Translator":
    """The translator of --translator, which caches its translations on disk: one model, a file of translations, or a
    model for each language, as in `de=MODEL,fr=MODEL`, into English."""
    from ..inference.translation import TranslatorsByPair, open_translator

    if not into_english or "=" not in given:
        return open_translator(given, **code)
    pairs = {(tag, _ENGLISH): name for tag, name in (part.split("=", 1) for part in given.split(","))}
    return TranslatorsByPair({pair: open_translator(name, pair=pair, **code) for pair, name in pairs.items()})

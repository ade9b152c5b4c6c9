"""`babelens evaluate captions`: retrieval between images and captions of one's own."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import (
    CONSISTENCY,
    PUBLISHED_TOO,
    AsJson,
    BatchSize,
    Grid,
    Languages,
    Model,
    OnlyCaptioned,
    Protocol,
    Regions,
    Rerank,
    ResultsFile,
    SourceOptions,
    Split,
    TopK,
    TruncateDim,
    TrustRemoteCode,
    check_reranking,
    tags_of,
)
from .starting import begin_work

if TYPE_CHECKING:
    from ..evaluation.query_ranks import QueryRanks

_TRANSLATION = "Translation before the search"


def captions(
    model: Model,
    data: Annotated[str, typer.Option(help=f"The images with captions: {PUBLISHED_TOO}.")],
    languages: Languages = None,
    split: Split = None,
    options: SourceOptions = None,
    protocol: Protocol = "standard",
    only_captioned: OnlyCaptioned = False,
    output: ResultsFile = None,
    batch_size: BatchSize = 64,
    truncate_dim: TruncateDim = None,
    consistency: Annotated[
        bool,
        typer.Option(
            "--consistency",
            help="Measure cross-lingual consistency, CLC, as well: a caption and its translations into all languages "
            "search together. CLC-A averages their scores; CLC-C learns how to join them, from --fit-data or "
            "--fit-split.",
            rich_help_panel=CONSISTENCY,
        ),
    ] = False,
    consistency_translator: Annotated[
        str | None,
        typer.Option(
            help="What translates the captions for CLC: a translation model between all the languages, a folder or a "
            "name on the Hub, or a file of translations (`.tsv`, `.jsonl`). Without it, captions of the same image "
            "in the other languages are used, which tell more about the image than translations, and the gain is "
            "larger than that of CLC.",
            metavar="TRANSLATOR",
            rich_help_panel=CONSISTENCY,
        ),
    ] = None,
    fit_data: Annotated[
        str | None,
        typer.Option(
            help="Other images with captions, on which CLC-C is fitted. Without this option, those of --data.",
            rich_help_panel=CONSISTENCY,
        ),
    ] = None,
    fit_split: Annotated[
        str | None,
        typer.Option(help="The split of these images on which CLC-C is fitted.", rich_help_panel=CONSISTENCY),
    ] = None,
    translate_test: Annotated[
        str | None,
        typer.Option(
            "--translate-test",
            help="A translation model of transformers: captions in other languages are also translated by it, before "
            "they search. A folder, or a name on the Hub; or, for models of one pair each, such as "
            "`de=Helsinki-NLP/opus-mt-de-en,fr=Helsinki-NLP/opus-mt-fr-en`.",
            metavar="TRANSLATOR",
            rich_help_panel=_TRANSLATION,
        ),
    ] = None,
    translate_to: Annotated[
        str, typer.Option(help="The language that captions are translated into.", rich_help_panel=_TRANSLATION)
    ] = "en",
    rerank: Rerank = None,
    top_k: TopK = 50,
    regions: Regions = None,
    grid: Grid = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Measure retrieval on captioned images: recall at 1, 5 and 10 in percent, in both directions.

    In every language, each caption searches all images, and each image searches all captions of that language. If
    images share a caption, word for word, the recall is shown in a second reading too, in which it is correct for all
    of them.

    With --rerank, a cross-encoder reorders the best --top-k candidates that MODEL finds for each query. That costs
    --top-k passes of the cross-encoder for every caption and for every image.

    With --consistency, recall is also measured for captions that search together with their translations into the
    other languages, by --consistency-translator.

    With --translate-test, recall is also measured for captions that are translated by machine before the search, with
    the time that the translations took. They are kept on disk, so that each caption is translated once.
    """
    tags = tags_of(languages)
    check_reranking(rerank, regions, grid)
    _check_consistency(consistency, data, split, fit_data, fit_split, rerank)
    if consistency_translator and not consistency:
        raise typer.BadParameter("it is for --consistency: give it as well", param_hint="--consistency-translator")
    if consistency and only_captioned:
        raise typer.BadParameter(
            "captions in all languages search together, and --only-captioned gives each language images of its own",
            param_hint="--consistency",
        )
    if translate_test and (consistency or rerank):
        raise typer.BadParameter(
            "it is measured without --consistency and without --rerank", param_hint="--translate-test"
        )
    begin_work()
    from ..data.corpus.corpus import languages_of
    from ..evaluation.consistency import compare_consistency
    from ..evaluation.query_ranks import of_captions
    from ..evaluation.retrieval import evaluate_retrieval
    from ..evaluation.translation_baseline import evaluate_translate_test
    from ..training.run_results import CONSISTENCY as CONSISTENT, RECALLS, TRANSLATE_TEST
    from .inputs import load_reranker, load_retrieval_embedder, load_translator, read_source
    from .tables import print_consistency, print_recalls, print_translate_test, show_results

    code: dict[str, Any] = {"batch_size": batch_size, "trust_remote_code": trust_remote_code}
    translator = None
    if translate_test:
        translator = load_translator(translate_test, translate_to, trust_remote_code)
    elif consistency_translator:
        option = "--consistency-translator"
        translator = load_translator(consistency_translator, None, trust_remote_code, option)
    embedder = load_retrieval_embedder(model, truncate_dim=truncate_dim, **code)
    reranker = load_reranker(rerank, top_k, regions, grid, **code)
    corpus = read_source(data, options, split=split)
    tags = list(languages_of(corpus)) if tags is None else tags
    ranks: dict[str, QueryRanks] = {}
    measured: dict[str, Any] = {"protocol": protocol, "only_captioned": only_captioned, "ranks": ranks}
    if translate_test and translator is not None:
        compared = evaluate_translate_test(embedder, corpus, tags, translator, to=translate_to, **measured)
        found = {
            RECALLS: {tag: each["untranslated"] for tag, each in compared.items() if each["untranslated"]},
            TRANSLATE_TEST: compared,
        }

        def show_translated() -> None:
            print_translate_test(data, compared, translate_to)

        show_results(found, output, as_json, show_translated, model=model, ranks=of_captions(ranks))
        return
    results = evaluate_retrieval(embedder, corpus, tags, reranker=reranker, **measured)
    beside: dict[str, Any] = {"model": model, "ranks": of_captions(ranks)}
    if not consistency:
        show_results(results, output, as_json, lambda: print_recalls(data, results), **beside)
        return
    validation = None
    if fit_data or fit_split:
        validation = read_source(fit_data or data, options, split=fit_split)
    joined = compare_consistency(
        embedder, {data: corpus}, tags, validation=validation, translator=translator, protocol=protocol
    )

    def show() -> None:
        print_recalls(data, results)
        print_consistency(joined)

    show_results({RECALLS: results, CONSISTENT: joined}, output, as_json, show, **beside)


def _check_consistency(
    consistency: bool, data: str, split: str | None, fit_data: str | None, fit_split: str | None, rerank: str | None
) -> None:
    """Checks the options of cross-lingual consistency."""
    if not consistency:
        if fit_data or fit_split:
            hint = "--fit-data" if fit_data else "--fit-split"
            raise typer.BadParameter("CLC-C is fitted with --consistency: give it as well", param_hint=hint)
    elif rerank:
        raise typer.BadParameter("a cross-encoder reads one text, not its translations", param_hint="--consistency")
    elif (fit_data or fit_split) and (fit_data or data, fit_split) == (data, split):
        raise typer.BadParameter(
            "CLC-C would be fitted on the captions that it is measured on: name others", param_hint="--fit-split"
        )

"""Retrieval on captioned images, for `babelens evaluate captions`."""

from pathlib import Path
from typing import Any

from ...data.corpus.corpus import languages_of
from ...evaluation.consistency import compare_consistency
from ...evaluation.query_ranks import QueryRanks, of_captions
from ...evaluation.retrieval import evaluate_retrieval
from ...evaluation.translate_test import evaluate_translate_test
from ...inference.embedder import Embedder
from ...inference.gallery import GalleryRow, TextsRow
from ...inference.reranking import Reranker
from ...inference.translation import Translator
from ...workflows.run_results import CONSISTENCY, RECALLS, TRANSLATE_TEST
from .results import show_results
from .sources import read_source
from .tables import print_consistency, print_recalls, print_translate_test


def evaluate_captions(
    embedder: Embedder,
    data: str,
    languages: list[str] | None,
    *,
    split: str | None,
    options: list[str] | None = None,
    protocol: str,
    only_captioned: bool,
    reranker: Reranker | None,
    output: Path | None,
    as_json: bool,
    report: bool = True,
    translator: Translator | None = None,
    translate_to: str | None = None,
    consistency: bool = False,
    fit_on: tuple[str, str | None] | None = None,
) -> None:
    """Evaluates the embedder in these languages, by default in all of the data, and shows the results.

    Args:
        embedder, data, languages, split, options, protocol, reranker, output, as_json, report: as the options of the
            command.
        translator: translates captions into `translate_to` before they search, as a second measurement; or, with
            `consistency`, into all languages.
        translate_to: the language; None with `consistency`.
        consistency: whether to measure cross-lingual consistency as well.
        fit_on: source and split of the captions on which CLC-C is fitted.
    """
    corpus = read_source(data, options, split=split)
    tags = list(languages_of(corpus)) if languages is None else languages
    ranks: dict[str, QueryRanks] = {}
    if translator is not None and translate_to is not None:
        measured: dict[str, Any] = {"protocol": protocol, "only_captioned": only_captioned, "ranks": ranks}
        compared = evaluate_translate_test(embedder, corpus, tags, translator, to=translate_to, **measured)
        found = {
            RECALLS: {tag: each["untranslated"] for tag, each in compared.items() if each["untranslated"]},
            TRANSLATE_TEST: compared,
        }
        show_results(
            found,
            output,
            as_json,
            lambda: print_translate_test(data, compared, translate_to),
            ranks=of_captions(ranks),
            report=report,
        )
        return
    gallery: list[GalleryRow | TextsRow] | None = [] if output and report else None
    results = evaluate_retrieval(
        embedder,
        corpus,
        tags,
        protocol=protocol,
        only_captioned=only_captioned,
        reranker=reranker,
        ranks=ranks,
        gallery=gallery,
    )
    beside: dict[str, Any] = {"ranks": of_captions(ranks), "gallery": gallery or (), "report": report}
    if not consistency:
        show_results(results, output, as_json, lambda: print_recalls(data, results), **beside)
        return
    validation = None if fit_on is None else read_source(fit_on[0], options, split=fit_on[1])
    joined = compare_consistency(
        embedder, {data: corpus}, tags, validation=validation, translator=translator, protocol=protocol
    )
    both: dict[str, Any] = {RECALLS: results, CONSISTENCY: joined}

    def show() -> None:
        print_recalls(data, results)
        print_consistency(joined)

    show_results(both, output, as_json, show, **beside)

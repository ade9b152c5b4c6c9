"""Retrieval on captioned images, for `babelens evaluate captions`."""

from pathlib import Path
from typing import Any

from ...data.corpus.corpus import languages_of
from ...data.corpus.loading import load_captions
from ...evaluation.consistency import compare_consistency
from ...evaluation.query_ranks import QueryRanks, of_captions
from ...evaluation.retrieval import evaluate_retrieval
from ...inference.embedder import Embedder
from ...inference.gallery import GalleryRow
from ...inference.reranking import Reranker
from ...workflows.run_results import CONSISTENCY, RECALLS
from .results import show_results
from .tables import print_consistency, print_recalls


def evaluate_captions(
    embedder: Embedder,
    data: str,
    languages: list[str] | None,
    *,
    split: str | None,
    protocol: str,
    only_captioned: bool,
    reranker: Reranker | None,
    output: Path | None,
    as_json: bool,
    report: bool = True,
    consistency: bool = False,
    fit_on: tuple[str, str | None] | None = None,
) -> None:
    """Evaluates the embedder in these languages, by default in all of the data, and shows the results.

    Args:
        embedder, data, languages, split, protocol, reranker, output, as_json, report: as the command's options.
        consistency: whether to measure cross-lingual consistency as well.
        fit_on: source and split of the captions on which CLC-C is fitted.
    """
    corpus = load_captions(data, split=split)
    tags = list(languages_of(corpus)) if languages is None else languages
    ranks: dict[str, QueryRanks] = {}
    gallery: list[GalleryRow] | None = [] if output and report else None
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
    validation = None if fit_on is None else load_captions(fit_on[0], split=fit_on[1])
    joined = compare_consistency(embedder, {data: corpus}, tags, validation=validation, protocol=protocol)
    both: dict[str, Any] = {RECALLS: results, CONSISTENCY: joined}

    def show() -> None:
        print_recalls(data, results)
        print_consistency(joined)

    show_results(both, output, as_json, show, **beside)

"""Models on the same captioned images, for `babelens compare --data`."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from datasets import Dataset

from ...configuration.errors import ComparisonError, UnknownLanguageError
from ...data.corpus.corpus import languages_of
from ...data.corpus.loading import load_captions
from ...evaluation.comparison import RunResults
from ...evaluation.query_ranks import CAPTIONS, QueryRanks
from ...evaluation.retrieval import evaluate_retrieval
from ...workflows.run_results import MEAN, row_names
from .compare import show_comparison
from .models import load_retrieval_embedder

logger = logging.getLogger(__name__)


def compare_models(
    models: Sequence[str],
    data: str,
    languages: list[str] | None,
    metrics: list[str],
    style: str,
    *,
    split: str | None,
    protocol: str,
    only_captioned: bool,
    batch_size: int,
    trust_remote_code: bool,
) -> None:
    """Evaluates models one after the other on the same captions, and shows them with the intervals of their
    differences to the first; arguments as those of `babelens compare`."""
    names = dict(zip(row_names(models), models, strict=True))
    if len(names) < len(models):
        raise ComparisonError(f"{next(model for model in models if models.count(model) > 1)} is named twice")
    corpus = load_captions(data, split=split)
    tags = list(languages_of(corpus)) if languages is None else languages
    rows = {}
    for number, (name, model) in enumerate(names.items(), 1):
        logger.info("%s (%d of %d)", model, number, len(models))
        results = _results(
            model,
            corpus,
            tags,
            {"protocol": protocol, "only_captioned": only_captioned},
            batch_size=batch_size,
            trust_remote_code=trust_remote_code,
        )
        rows[name] = [results]
    show_comparison(rows, metrics, style, intervals=True)


def _results(model: str, corpus: Dataset, languages: list[str], options: dict[str, Any], **loading: Any) -> RunResults:
    """The results of a model, which is in memory only meanwhile.

    Raises:
        typer.BadParameter: for a model that has not learned one of the languages.
    """
    if Path(model).is_file():
        raise typer.BadParameter(f"{model} is a file: with --data, RUNS are models", param_hint="RUNS")
    ranks: dict[str, QueryRanks] = {}
    try:
        scores = evaluate_retrieval(
            load_retrieval_embedder(model, **loading), corpus, languages, ranks=ranks, **options
        )
    except UnknownLanguageError as error:
        raise typer.BadParameter(f"{model}: {error}", param_hint="--languages") from error
    return RunResults(
        model,
        {(CAPTIONS, language): numbers for language, numbers in scores.items()},
        {(CAPTIONS, language): found for language, found in ranks.items()},
        {CAPTIONS: {MEAN: list(scores)}},
    )

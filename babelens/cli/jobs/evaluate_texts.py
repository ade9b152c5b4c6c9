"""Texts compared with texts, for `babelens evaluate texts`."""

from collections.abc import Mapping
from pathlib import Path

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ...data.corpus.loading import load_translations
from ...data.readers.bitext import load_bitext
from ...data.readers.bitext_files import is_bitext
from ...data.readers.similarity import is_similarity_file, load_similarity
from ...evaluation.query_ranks import QueryRanks, of_captions
from ...evaluation.texts import evaluate_bitext, evaluate_similarity
from ...inference.embedder import Embedder
from ..console import plain_console
from .results import show_results


def evaluate_texts(
    embedder: Embedder,
    source: str,
    languages: list[str] | None,
    *,
    task: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measures the embedder on sentence pairs, with scores or as translations, and shows the results; arguments as
    the command's options.

    Raises:
        typer.BadParameter: for languages of pairs with scores.
    """
    ranks: dict[str, QueryRanks] = {}
    if is_similarity_file(source):
        if languages is not None:
            raise typer.BadParameter("it picks translations, and this file has scores", param_hint="--languages")
        title, results = f"{source}, similarity", evaluate_similarity(embedder, load_similarity(source), task=task)
    else:
        load = load_bitext if is_bitext(source) else load_translations
        corpus = load(source, languages=languages)
        title = f"{source}, translations, recall in %"
        results = evaluate_bitext(embedder, corpus, task=task, ranks=ranks)
    show_results(results, output, as_json, lambda: _print(title, results), ranks=of_captions(ranks))


def _print(title: str, results: Mapping[str, Mapping[str, float]]) -> None:
    """Prints a row for each pair of languages."""
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("languages")
    for heading in next(iter(results.values())):
        table.add_column(heading, justify="right")
    for pair, numbers in results.items():
        cells = (f"{value:,}" if name.startswith("n_") else f"{value:.1f}" for name, value in numbers.items())
        table.add_row(pair, *cells)
    plain_console().print(table)

"""`babelens evaluate texts`: texts compared with texts."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from .console import plain_console, results_table
from .options import (
    AsJson,
    BatchSize,
    Model,
    ResultsFile,
    TextPooling,
    TextPrompt,
    TextTask,
    TrustRemoteCode,
    of_text_encoders,
    split_tags,
)
from .starting import begin_work

if TYPE_CHECKING:
    from ..evaluation.query_ranks import QueryRanks


def texts(
    model: Model,
    source: Annotated[
        str,
        typer.Option(
            "--texts",
            help="Sentence pairs. With scores of their similarity (STS): a `.tsv` file with a header or a `.jsonl` "
            "file, with the columns `text_a`, `text_b`, `score`, and `language_a`, `language_b` or `language`. "
            "Translations: a `.tsv` file with a header of languages, a `.jsonl` file, or files as OPUS and WikiMatrix "
            "publish them.",
            metavar="FILE",
        ),
    ],
    languages: Annotated[
        str | None,
        typer.Option(help="Use the translations in these languages only: tags separated by commas, such as `de,en`."),
    ] = None,
    task: TextTask = None,
    text_pooling: TextPooling = None,
    text_prompt: TextPrompt = None,
    output: ResultsFile = None,
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Measure how well a model compares texts, without images.

    Of pairs with scores, Spearman's correlation between the cosines and the scores. Of translations, how often a text
    finds its translation among all texts of the other language, in both directions.

    MODEL may be a text encoder such as LaBSE or E5, for comparison.
    """
    tags = None if languages is None else split_tags(languages)
    if tags is not None and len(tags) < 2:
        raise typer.BadParameter(f"{languages!r} names fewer than two languages", param_hint="--languages")
    begin_work()
    from ..data.corpus.loading import load_translations
    from ..data.readers.bitext import is_similarity_file, load_bitext, load_similarity
    from ..data.readers.bitext_files import is_bitext
    from ..evaluation.query_ranks import of_captions
    from ..evaluation.texts import evaluate_bitext, evaluate_similarity
    from .inputs import load_retrieval_embedder
    from .tables import show_results

    code = {"batch_size": batch_size, "trust_remote_code": trust_remote_code}
    embedder = load_retrieval_embedder(model, **code, **of_text_encoders(text_pooling, text_prompt))

    ranks: dict[str, QueryRanks] = {}
    if is_similarity_file(source):
        if tags is not None:
            raise typer.BadParameter("it picks translations, and this file has scores", param_hint="--languages")
        title, results = f"{source}, similarity", evaluate_similarity(embedder, load_similarity(source), task=task)
    else:
        load = load_bitext if is_bitext(source) else load_translations
        corpus = load(source, languages=tags)
        title = f"{source}, translations, recall in %"
        results = evaluate_bitext(embedder, corpus, task=task, ranks=ranks)
    show_results(results, output, as_json, lambda: _print(title, results), model=model, ranks=of_captions(ranks))


def _print(title: str, results: Mapping[str, Mapping[str, float]]) -> None:
    """Prints a row for each pair of languages."""
    table = results_table("languages", *next(iter(results.values())), title=title)
    for pair, numbers in results.items():
        cells = (f"{value:,}" if name.startswith("n_") else f"{value:.1f}" for name, value in numbers.items())
        table.add_row(pair, *cells)
    plain_console().print(table)

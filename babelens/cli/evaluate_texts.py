"""`babelens evaluate texts`: texts compared with texts."""

from typing import Annotated

import typer

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
    from .jobs.evaluate_texts import evaluate_texts
    from .jobs.models import load_retrieval_embedder

    code = {"batch_size": batch_size, "trust_remote_code": trust_remote_code}
    evaluate_texts(
        load_retrieval_embedder(model, **code, **of_text_encoders(text_pooling, text_prompt)),
        source,
        tags,
        task=task,
        output=output,
        as_json=as_json,
    )

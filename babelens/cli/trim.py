"""`babelens trim`: removes the word pieces of a model that given texts do not use."""

from pathlib import Path
from typing import Annotated

import typer

from .common import Model, TrustRemoteCode, begin_work, check_path, plain_console, results_table


def trim(
    model: Model,
    output: Annotated[Path, typer.Option(help="A new folder for the smaller model.", file_okay=False)],
    texts: Annotated[
        list[Path] | None,
        typer.Option(help="A text file in UTF-8, one text per line. Repeatable.", callback=check_path, dir_okay=False),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="A recipe whose training texts are counted: `emoji/mural`.")
    ] = None,
    coverage: Annotated[
        float, typer.Option(help="The share of the pieces in the texts to keep, at least.", min=0.0, max=1.0)
    ] = 0.9999,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Reduce the vocabulary of a model to the pieces that given texts use.

    `babelens trim facebook/mbart-large-50 --texts en-de.txt --output mbart-en-de`

    The model may be mBART, XLM-R, M-BERT, a model of babelens with word pieces, or any other model that transformers
    loads with a fast tokenizer of the kinds Unigram and WordPiece. Special tokens, language codes and every character
    of the texts are kept. The rarest pieces beyond the coverage are split into shorter pieces.
    """
    if not (texts or recipe):
        raise typer.BadParameter("name the texts that the model must read: --texts or --recipe")
    begin_work()

    from ..training.trim import gather_texts, trim as trim_model

    kept = gather_texts(texts or (), recipe)
    report = trim_model(model, kept, output, coverage=coverage, trust_remote_code=trust_remote_code)
    console = plain_console()
    table = results_table("", "before", "after", "", title=str(output))
    for name, (before, after), form in (
        ("word pieces", report.pieces, ",d"),
        ("parameters", report.parameters, ",d"),
        ("megabytes", report.megabytes, ",.1f"),
    ):
        table.add_row(name, format(before, form), format(after, form), f"{after / before:.1%}")
    table.add_row("unknown pieces in the texts", *(f"{count:,}" for count in report.unknown))
    console.print(table)
    console.print(f"{report.coverage:.4%} of the pieces in {report.texts:,} texts are kept.")

"""`babelens trim`: a model without the word pieces that nobody needs."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ..workflows.trimming import TrimmingReport, gather_texts, trim as trim_vocabulary
from .console import plain_console
from .options import TrustRemoteCode

_TEXTS = "Texts"


def trim(
    model: Annotated[str, typer.Argument(help="A model's folder, or its name on the Hub.")],
    output: Annotated[Path, typer.Option(help="A new folder for the smaller model.", file_okay=False)],
    captions: Annotated[
        list[str] | None,
        typer.Option(
            help="Captioned images: a folder with a `metadata.jsonl`, parquet files, or a Hub data set. This option "
            "and the next two may be given several times.",
            rich_help_panel=_TEXTS,
        ),
    ] = None,
    translations: Annotated[
        list[str] | None,
        typer.Option(help="Translations: a `.tsv` or `.jsonl` file, or a Hub data set.", rich_help_panel=_TEXTS),
    ] = None,
    texts: Annotated[
        list[Path] | None,
        typer.Option(
            help="A text file in UTF-8, one text in a line.", exists=True, dir_okay=False, rich_help_panel=_TEXTS
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="A recipe, such as `emoji/mural`: the texts that it trains on, each once.", rich_help_panel=_TEXTS
        ),
    ] = None,
    languages: Annotated[
        str | None,
        typer.Option(
            help="Of captions, translations and recipes: tags with commas between, `en,de`. By default all, of a "
            "recipe those that it trains on.",
            rich_help_panel=_TEXTS,
        ),
    ] = None,
    coverage: Annotated[
        float, typer.Option(help="The share of all pieces in the texts to keep at least.", min=0.0, max=1.0)
    ] = 0.9999,
    trust_remote_code: TrustRemoteCode = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Cut a model's vocabulary to the pieces that some texts use; what it computes of them stays the same.

    `babelens trim facebook/mbart-large-50 --captions photos --languages en,de --output mbart-en-de`

    For mBART, XLM-R, M-BERT, models of babelens with word pieces, and whatever else transformers reads with a fast
    tokenizer. Special tokens, language codes, and every character of the texts remain; the rarest pieces beyond the
    coverage are spelled with shorter ones, and texts in which that happens are counted and shown.
    """
    if not (captions or translations or texts or recipe):
        raise typer.BadParameter("say which texts the model is to read: --captions, --translations, --texts, --recipe")
    found = gather_texts(
        captions=captions or (),
        translations=translations or (),
        files=texts or (),
        recipe=recipe,
        languages=[tag.strip() for tag in languages.split(",")] if languages else None,
    )
    report = trim_vocabulary(model, found, output, coverage=coverage, trust_remote_code=trust_remote_code)
    if as_json:
        typer.echo(json.dumps({"model": str(output)} | asdict(report), ensure_ascii=False, indent=2))
    else:
        _show(report, output)


def _show(report: TrimmingReport, output: Path) -> None:
    console = plain_console()
    table = Table("", "before", "after", "", box=SIMPLE_HEAD, title=str(output), title_justify="left")
    for name, (before, after), form in (
        ("word pieces", report.pieces, ",d"),
        ("parameters", report.parameters, ",d"),
        ("megabytes", report.megabytes, ",.1f"),
    ):
        table.add_row(name, format(before, form), format(after, form), f"{after / before:.1%}")
    table.add_row("unknown pieces in the texts", *(f"{number:,}" for number in report.unknown))
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(table)
    console.print(
        f"{report.coverage:.4%} of the pieces in {report.texts:,} texts are kept; "
        f"{report.changed:,} texts are cut otherwise than before" + (", such as" if report.samples else ".")
    )
    for sample in report.samples:
        console.print(f"- {sample.text}: {_pieces(sample.before)} → {_pieces(sample.after)}", highlight=False)


def _pieces(pieces: list[str]) -> str:
    return " ".join(pieces)

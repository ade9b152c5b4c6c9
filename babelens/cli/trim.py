"""`babelens trim`: a model without the word pieces that some texts do not use."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import (
    PUBLISHED_TOO,
    AsJson,
    Model,
    SourceOptions,
    TrustRemoteCode,
    begin_work,
    check_path,
    plain_console,
    print_json,
    results_table,
    split_tags,
)

if TYPE_CHECKING:
    from ..training.trimming import TrimmingReport

_TEXTS = "Texts that the model must read"


def trim(
    model: Model,
    output: Annotated[Path, typer.Option(help="A new folder for the smaller model.", file_okay=False)],
    captions: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Captioned images: {PUBLISHED_TOO}. May be given several times.",
            rich_help_panel=_TEXTS,
        ),
    ] = None,
    translations: Annotated[
        list[str] | None,
        typer.Option(
            help="Translations: a `.tsv` or `.jsonl` file, OPUS's `de-en.txt.zip`, a data set on the Hub, or a "
            "published data set with --option: `wikimatrix`, `opus`, `multi30k`, `cc3m`, `cc300k`. "
            "May be given several times.",
            rich_help_panel=_TEXTS,
        ),
    ] = None,
    options: SourceOptions = None,
    texts: Annotated[
        list[Path] | None,
        typer.Option(
            help="A text file in UTF-8 with one text per line. May be given several times.",
            callback=check_path,
            dir_okay=False,
            rich_help_panel=_TEXTS,
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="A recipe, such as `emoji/mural`: the texts that it trains on, each counted once.",
            rich_help_panel=_TEXTS,
        ),
    ] = None,
    languages: Annotated[
        str | None,
        typer.Option(
            help="The languages of captions, translations and recipes to read: tags separated by commas, such as "
            "`en,de`. Without this option, all languages; of a recipe, the languages that it trains on.",
            rich_help_panel=_TEXTS,
        ),
    ] = None,
    coverage: Annotated[
        float, typer.Option(help="The smallest share of the pieces in the texts that is kept.", min=0.0, max=1.0)
    ] = 0.9999,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Reduce the vocabulary of a model to what some texts use.

    `babelens trim facebook/mbart-large-50 --captions photos --languages en,de --output mbart-en-de`

    The model may be mBART, XLM-R, M-BERT, a model of babelens with word pieces, or any other model that transformers
    loads with a fast tokenizer. Special tokens, language codes and every character of the texts are kept. The rarest
    pieces beyond the coverage are spelled by shorter pieces; the command counts the texts in which that happens, and
    shows some of them.
    """
    if not (captions or translations or texts or recipe):
        raise typer.BadParameter(
            "name the texts that the model must read: --captions, --translations, --texts or --recipe"
        )
    if options and len([*(captions or ()), *(translations or ())]) != 1:
        raise typer.BadParameter(
            "it is for one source; several are read as the sources of a --recipe", param_hint="--option"
        )
    begin_work()

    from ..training.trimming import gather_texts, trim as trim_model
    from .common import read_source

    sources: dict[str, Any] = {"captions": captions or (), "translations": translations or ()}
    for kind in sources:
        if options and sources[kind]:
            sources[kind] = [read_source(sources[kind][0], options, translations=kind == "translations")]
    tags = split_tags(languages) if languages else None
    kept = gather_texts(**sources, files=texts or (), recipe=recipe, languages=tags)
    report = trim_model(model, kept, output, coverage=coverage, trust_remote_code=trust_remote_code)
    if as_json:
        print_json({"model": str(output)} | asdict(report))
    else:
        _show(report, output)


def _show(report: "TrimmingReport", output: Path) -> None:
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
    console.print(
        f"{report.coverage:.4%} of the pieces in {report.texts:,} texts are kept; "
        f"{report.changed:,} texts are cut otherwise than before" + (", such as" if report.samples else ".")
    )
    for sample in report.samples:
        pieces = f"{' '.join(sample.before)} → {' '.join(sample.after)}"
        console.print(f"- {sample.text}: {pieces}", highlight=False)

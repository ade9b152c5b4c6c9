"""`babelens export`: writes a dual encoder as ONNX graphs, or as a stock model."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from .common import Model, TrustRemoteCode, begin_work, plain_console, results_table

if TYPE_CHECKING:
    from ..inference.onnx.export import Exported
    from ..inference.onnx.immich import ImmichFolder
    from ..stock_folders import StockFolder

Precision = StrEnum("Precision", ["fp32", "fp16", "int8"])


def export(
    model: Model,
    output: Annotated[
        Path, typer.Option(help="A new folder, or the folder of MODEL to add graphs to it.", file_okay=False)
    ],
    format_: Annotated[
        Literal["onnx", "transformers", "immich"],
        typer.Option(
            "--format",
            help="`onnx`: graphs. `transformers`: an equivalent class that comes with transformers, if there is one. "
            "`immich`: for Immich's machine-learning server, from a model that `acquire` made.",
        ),
    ] = "onnx",
    precision: Annotated[
        list[Precision] | None,
        typer.Option(help="Of graphs: float32, the default; float16; or weights of 8 bits. Repeatable."),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(help="With --format immich: the language in which to read queries that name none."),
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Write a dual encoder for other programs: as ONNX graphs or a stock model of transformers.

    `babelens export runs/mural --output mural-onnx --precision fp32 --precision int8`

    The export is compared with the model, and refused if its embeddings differ.
    `Embedder.from_pretrained(OUTPUT, backend="onnx")` and transformers.js read graphs. An adapter is exported together
    with its base. MURAL, ALIGN and ETCL have an equivalent stock model.
    """
    precisions = [each.value for each in precision or [Precision.fp32]]
    if language is not None and format_ != "immich":
        raise typer.BadParameter("only for --format immich; graphs read every language", param_hint="--language")
    if precision and format_ == "transformers":
        raise typer.BadParameter("only for ONNX graphs; leave it out", param_hint="--precision")
    if len(precisions) > 1 and format_ == "immich":
        raise typer.BadParameter("--format immich takes one", param_hint="--precision")
    begin_work()
    code = {"trust_remote_code": trust_remote_code}
    if format_ == "immich":
        from ..inference.onnx.immich import export_immich

        _show_immich(export_immich(model, output, language=language, precision=precisions[0], **code))
    elif format_ == "transformers":
        from ..stock_folders import export_stock

        _show_stock(export_stock(model, output, **code))
    else:
        from ..inference.onnx.export import export_onnx

        _show_graphs(export_onnx(model, output, precisions=precisions, **code))


def _show_immich(made: "ImmichFolder") -> None:
    console = plain_console()
    cosines = " and ".join(f"{value:.5f} ({name})" for name, value in made.cosines.items())
    console.print(f"{made.folder}: {made.width} dimensions; lowest cosine with the model {cosines}", highlight=False)
    console.print(
        f"Immich names the language of a query if it is {', '.join(made.routed) or 'none of these'}. Other queries "
        f"are read as {made.language}. The export has no glossary.",
        highlight=False,
    )
    console.print(f"In Immich, it replaces {made.replaces}.", highlight=False)


def _show_stock(made: "StockFolder") -> None:
    differences = " and ".join(f"{value:.1e} ({name}s)" for name, value in made.difference.items())
    console = plain_console()
    console.print(
        f"{made.folder}: {made.class_name} of transformers; largest difference {differences}", highlight=False
    )
    for each in made.lost:
        console.print(f"It lacks {each}.", highlight=False)


def _show_graphs(exported: "Exported") -> None:
    from ..inference.onnx.model import graph_file

    console, settings = plain_console(), exported.settings
    table = results_table("graph", "megabytes", "largest difference")
    for precision, differences in settings.precisions.items():
        for tower, size in exported.sizes[precision].items():
            difference = f"{differences[tower]:.1e}" if tower in differences else ""
            table.add_row(graph_file(tower, precision), f"{size / 1e6:,.1f}", difference)
    console.print(table)
    if settings.text_length:
        console.print(f"The graph reads texts of {settings.text_length} tokens or words; shorter ones are padded.")
    console.print(f'{exported.folder}: Embedder.from_pretrained(…, backend="onnx")', highlight=False)

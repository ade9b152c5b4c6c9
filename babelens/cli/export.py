"""`babelens export`: writes a dual encoder as ONNX graphs, or as a stock model."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from .common import Model, TruncateDim, TrustRemoteCode, begin_work, plain_console, results_table

if TYPE_CHECKING:
    from ..inference.onnx.export import Exported
    from ..stock_folders import StockFolder


class Precision(StrEnum):
    """The precisions of graphs."""

    fp32 = "fp32"
    fp16 = "fp16"
    int8 = "int8"


def export(
    model: Model,
    output: Annotated[
        Path,
        typer.Option(help="A new folder, or the folder of MODEL to add graphs to it.", file_okay=False),
    ],
    format_: Annotated[
        Literal["onnx", "transformers"],
        typer.Option(
            "--format",
            help="`onnx`: graphs. `transformers`: an equivalent class that comes with transformers, if there is one.",
        ),
    ] = "onnx",
    layout: Annotated[
        Literal["immich"] | None,
        typer.Option(help="`immich`: the layout in which Immich's machine-learning server stores a CLIP."),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(help="With --layout immich: the language of all queries."),
    ] = None,
    precision: Annotated[
        list[Precision] | None,
        typer.Option(help="Float32, the default; float16; or weights of 8 bits. May be given several times."),
    ] = None,
    joint: Annotated[
        bool,
        typer.Option(
            "--joint",
            help="Also write both towers as one graph, for zero-shot classification by transformers.js.",
        ),
    ] = False,
    truncate_dim: TruncateDim = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Write a dual encoder for other programs: as ONNX graphs or a stock model of transformers.

    `babelens export runs/mural --output mural-onnx --precision fp32 --precision int8`

    The export is compared with the model, and refused if its embeddings differ.
    `Embedder.from_pretrained(OUTPUT, backend="onnx")` and transformers.js read graphs. An adapter is exported together
    with its base. MURAL, ALIGN and ETCL have an equivalent stock model.
    """
    if joint and (layout is not None or format_ != "onnx"):
        raise typer.BadParameter("only for graphs; leave it out", param_hint="--joint")
    if layout is None and language is not None:
        raise typer.BadParameter("only for --layout immich; graphs read every language", param_hint="--language")
    if layout == "immich":
        if format_ != "onnx" or len(precision or []) > 1:
            raise typer.BadParameter("it takes one --precision, and no --format", param_hint="--layout")
        name = precision[0].value if precision else Precision.fp32.value
        _export_immich(model, output, language, name, trust_remote_code)
        return
    if format_ != "onnx":
        if precision:
            raise typer.BadParameter("only for ONNX graphs; leave it out", param_hint="--precision")
        _export_stock(model, output, trust_remote_code)
        return
    begin_work()

    from ..inference.onnx.export import export_onnx

    exported = export_onnx(
        model,
        output,
        precisions=[each.value for each in precision or [Precision.fp32]],
        joint=joint,
        truncate_dim=truncate_dim,
        trust_remote_code=trust_remote_code,
    )
    _show(exported)


def _export_immich(model: str, output: Path, language: str | None, precision: str, trust_remote_code: bool) -> None:
    begin_work()

    from ..inference.onnx.immich import export_immich

    made = export_immich(model, output, language=language, precision=precision, trust_remote_code=trust_remote_code)
    console = plain_console()
    cosines = " and ".join(f"{value:.5f} ({name})" for name, value in made.cosines.items())
    console.print(f"{made.folder}: {made.width} dimensions; lowest cosine with the model {cosines}", highlight=False)
    if made.language is not None:
        console.print(f"It reads every query as {made.language}.", highlight=False)
    console.print(f"In Immich, it replaces {made.takes_the_place_of}.", highlight=False)


def _export_stock(model: str, output: Path, trust_remote_code: bool) -> None:
    begin_work()

    from ..stock_folders import export_stock

    show_stock(export_stock(model, output, trust_remote_code=trust_remote_code))


def show_stock(made: "StockFolder") -> None:
    """Prints the class of a stock folder, how close it is to its model, and what it lacks."""
    differences = " and ".join(f"{value:.1e} ({name}s)" for name, value in made.difference.items())
    console = plain_console()
    console.print(
        f"{made.folder}: {made.class_name} of transformers; largest difference {differences}", highlight=False
    )
    for each in made.lost:
        console.print(f"It lacks {each}.", highlight=False)


def _show(exported: "Exported") -> None:
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

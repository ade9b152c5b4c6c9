"""`babelens export`: writes a dual encoder as ONNX graphs, or as a stock model."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from .common import Model, TrustRemoteCode, begin_work, plain_console, results_table

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
        str | None, typer.Option(help="With --format immich: the language in which to read queries that name none.")
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
    console = plain_console()
    if format_ == "immich":
        from ..inference.onnx.immich import export_immich

        made = export_immich(model, output, language=language, precision=precisions[0], **code)
        cosines = " and ".join(f"{value:.5f} ({name})" for name, value in made.cosines.items())
        lines = [
            f"{made.folder}: {made.width} dimensions; lowest cosine with the model {cosines}",
            f"Immich names the language of a query if it is {', '.join(made.routed) or 'none of these'}. Other "
            f"queries are read as {made.language}. The export has no glossary.",
            f"In Immich, it replaces {made.replaces}.",
        ]
    elif format_ == "transformers":
        from ..stock_folders import export_stock

        stock = export_stock(model, output, **code)
        differences = " and ".join(f"{value:.1e} ({name}s)" for name, value in stock.difference.items())
        lines = [f"{stock.folder}: {stock.class_name} of transformers; largest difference {differences}"]
        lines += [f"It lacks {each}." for each in stock.lost]
    else:
        from ..inference.onnx.export import export_onnx
        from ..inference.onnx.model import GRAPH_FOLDER, graph_file

        exported = export_onnx(model, output, precisions=precisions, **code)
        table, settings = results_table("graph", "megabytes", "largest difference"), exported.settings
        for each, found in settings.precisions.items():
            for tower, difference in found.items():
                name = graph_file(tower, each)
                size = sum(file.stat().st_size for file in (exported.folder / GRAPH_FOLDER).glob(f"{name}*"))
                table.add_row(name, f"{size / 1e6:,.1f}", f"{difference:.1e}")
        console.print(table)
        lines = [f'{exported.folder}: Embedder.from_pretrained(…, backend="onnx")']
        if settings.text_length:
            lines[:0] = [f"The graph reads texts of {settings.text_length} tokens or words; shorter ones are padded."]
    for line in lines:
        console.print(line, highlight=False)

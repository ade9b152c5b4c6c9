"""`babelens export`: a dual encoder as ONNX graphs, for onnxruntime and browsers."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from .options import AsJson, Model, Split, TrustRemoteCode


class Precision(StrEnum):
    """The precisions of graphs."""

    fp32 = "fp32"
    fp16 = "fp16"
    int8 = "int8"


def export(
    model: Model,
    output: Annotated[
        Path,
        typer.Option(
            help="A new folder; or the folder of MODEL, which gets graphs beside its weights.", file_okay=False
        ),
    ],
    format_: Annotated[Literal["onnx"], typer.Option("--format", help="The format of the graphs.")] = "onnx",
    precision: Annotated[
        list[Precision] | None,
        typer.Option(
            help="Float32, the default; float16; or weights of 8 bits (dynamic quantization). May be given several "
            "times, for several graphs in one folder."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Captioned images, as `babelens evaluate --data` takes them: the graphs and the model search them, "
            "and the recall of each precision is shown."
        ),
    ] = None,
    split: Split = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Write both towers of a dual encoder as ONNX graphs, with the files that prepare their inputs.

    `babelens export runs/mural --output mural-onnx --precision fp32 --precision int8`

    The graphs are run and compared with the model; the largest difference of any value of an embedding is shown, and
    nothing is written where it exceeds 0.0001 in float32. With `--data`, what a precision costs in recall is shown.
    `Embedder.from_pretrained(OUTPUT, backend="onnx")` encodes with the graphs, and transformers.js reads the folder
    too. An adapter is exported together with its base model.
    """
    if split is not None and data is None:
        raise typer.BadParameter("there is no data set whose split it could be: give --data", param_hint="--split")
    from .jobs.export import export_model

    precisions = [each.value for each in precision or [Precision.fp32]]
    export_model(model, output, precisions, data, split, trust_remote_code=trust_remote_code, as_json=as_json)

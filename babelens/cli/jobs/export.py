"""A dual encoder as ONNX graphs, for `babelens export`."""

import json
from dataclasses import asdict
from pathlib import Path

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ...data.corpus.corpus import languages_of
from ...data.corpus.loading import load_captions
from ...evaluation.retrieval import evaluate_retrieval
from ...inference.embedder import Embedder
from ...inference.onnx.export import Exported, export_onnx
from ...inference.onnx.graph_folder import graph_file
from ..console import plain_console


def export_model(
    model: str,
    output: Path,
    precisions: list[str],
    data: str | None = None,
    split: str | None = None,
    *,
    trust_remote_code: bool,
    as_json: bool,
) -> None:
    """Exports a model, and shows its graphs with their differences from the model.

    Args:
        model, output, precisions, trust_remote_code, as_json: as the command's options.
        data, split: captioned images, by whose recalls the graphs are compared with the model.
    """
    corpus = None if data is None else load_captions(data, split=split)  # before the export, which takes minutes
    exported = export_onnx(model, output, precisions=precisions, trust_remote_code=trust_remote_code)
    recalls = {}
    if corpus is not None:
        encoders = {"model": Embedder.from_pretrained(model, device="cpu", trust_remote_code=trust_remote_code)}
        for each in precisions:
            encoders[each] = Embedder.from_pretrained(output, backend="onnx", precision=each)
        languages = list(languages_of(corpus))
        recalls = {name: evaluate_retrieval(encoder, corpus, languages) for name, encoder in encoders.items()}
    if as_json:
        facts = {"folder": str(output), "bytes": exported.sizes} | asdict(exported.settings)
        typer.echo(json.dumps(facts | ({"recalls": recalls} if recalls else {}), ensure_ascii=False, indent=2))
    else:
        _show(exported)
        if recalls:
            _show_recalls(recalls)


def _show_recalls(recalls: dict[str, dict[str, dict[str, float]]]) -> None:
    """Shows the mean recall of the model and of each precision, by language, with the difference from the model."""
    table = Table("mean recall", *recalls, box=SIMPLE_HEAD)
    for language, of_model in recalls["model"].items():
        exact = of_model["mean_recall"]
        others = [recalls[name][language]["mean_recall"] for name in recalls if name != "model"]
        table.add_row(language, f"{exact:.1f}", *(f"{each:.1f} ({each - exact:+.1f})" for each in others))
    for column in table.columns[1:]:
        column.justify = "right"
    plain_console().print(table)


def _show(exported: Exported) -> None:
    console, settings = plain_console(), exported.settings
    table = Table("graph", "megabytes", "largest difference", box=SIMPLE_HEAD)
    for precision, differences in settings.precisions.items():
        for tower, difference in differences.items():
            size = exported.sizes[precision][tower] / 1e6
            table.add_row(graph_file(tower, precision), f"{size:,.1f}", f"{difference:.1e}")
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(table)
    if settings.text_length:
        console.print(f"Every text has {settings.text_length} tokens or words in the graph: shorter ones are padded.")
    if settings.no_reading:
        console.print(f"Texts need the processor: {settings.no_reading}.")
    console.print(f'{exported.folder}: Embedder.from_pretrained(…, backend="onnx")', highlight=False)

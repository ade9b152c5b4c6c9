"""Exports a dual encoder: both towers as ONNX graphs, with the files that prepare their inputs. Texts of SMALR and
LIWE always have the same length, because torch.export unrolls a GRU. Image processors that give every image a size of
its own (NaFlex of SigLIP 2), and models that read features of images, have no graph."""

import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.export import Dim

from ...modeling.modeling_dual_encoder import normalize
from ...modeling.modeling_smalr import SmalrModel
from ...processing.processing_per_language import counting_cut_texts
from ...processing.word_tokenizers import WordLevelProcessor
from ...utils.errors import InputError, ModelKindError, first_line, requires
from ...utils.files import SCRATCH, errors_naming, new_folder, remove_unfinished
from ...utils.identity import folder_identity
from ..embedder import Embedder
from ..loading import SentenceEncoder, as_output
from ..texts import SAMPLE_TEXTS, language_tags, sample_languages
from .model import GRAPH_FOLDER, PRECISIONS, SETTINGS_FILE, TOWERS, GraphSettings, graph_file, open_graph

Shapes = dict[str, list[str | int]]
LARGEST_DIFFERENCE = 1e-4  # of a value of an embedding of unit length, between a float32 graph and its model
# Batches on which graphs are compared: ranges of `SAMPLE_TEXTS`, and numbers of images.
_TEXT_BATCHES = (slice(0, 1), slice(1, 3), slice(5, None))
_IMAGE_BATCHES = (1, 2, 5)
# Operations with weights of 8 bits. onnxruntime has no fast convolution of 8 bits on processors, and none in browsers.
_QUANTIZED = ["MatMul", "Gemm", "Gather"]


@dataclass(frozen=True)
class Exported:
    """An export: the folder, and its settings (inputs, and precisions with their differences)."""

    folder: Path
    settings: GraphSettings


def export_onnx(
    source: str | Path, output: str | Path, *, precisions: Sequence[str] = ("fp32",), **loading: Any
) -> Exported:
    """Writes a dual encoder, from a folder or the Hub, or an adapter as ONNX graphs, and compares them with it.
    `output` is a new folder, or the model's own, to which graphs are added; `precisions` are among `fp32`, `fp16` and
    `int8`. `loading` is as in `Embedder.from_pretrained`, such as `truncate_dim`, which cuts the embeddings.

    Examples:
        >>> export_onnx("runs/mural", "mural-onnx", precisions=["fp32", "int8"]).settings.precisions
        {'fp32': {'text': 2.4e-07, 'image': 3.6e-07}, 'int8': {'text': 0.011, 'image': 0.008}}
    """
    if unknown := [name for name in precisions if name not in PRECISIONS] or not precisions:
        raise InputError(f"precisions={unknown or []}: choose some of {', '.join(PRECISIONS)}")
    # Before it is loaded; a repository has no weights next to its graphs.
    identity = folder_identity(source, with_processor=False) if Path(source).is_dir() else None
    embedder = load_exportable(source, **loading)
    with _destination(Path(output), Path(source)) as folder:
        _write_processor(embedder, folder)
        graphs = folder / GRAPH_FOLDER
        graphs.mkdir()
        settings = _write_graphs(embedder, graphs, list(dict.fromkeys(precisions)), identity)
        write_json(graphs / SETTINGS_FILE, asdict(settings))
    return Exported(Path(output), settings)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def load_exportable(source: str | Path, **loading: Any) -> Embedder:
    """Loads a dual encoder in the form in which it is exported: on the processor, in float32."""
    embedder = Embedder.from_pretrained(source, device="cpu", dtype=torch.float32, **loading)
    if isinstance(embedder.model, SentenceEncoder):
        raise ModelKindError(f"{source}: export it with SentenceTransformer(…, backend='onnx')")
    if isinstance(embedder.model, SmalrModel) and not embedder.model.config.compressed:
        embedder.model = embedder.model.compress()  # or else the graph computes all embeddings of words in every call
    if embedder.truncate_dim is not None:
        embedder.model.config.truncate_dim = embedder.truncate_dim
    embedder.model.eval().requires_grad_(False)
    return embedder


class Tower(nn.Module):
    """A tower, `text` or `image`: maps inputs by name to features [N, d], not normalized, cut to `truncate_dim`."""

    def __init__(self, model: nn.Module, tower: str) -> None:
        super().__init__()
        self.model, self.tower = model, tower

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        features = as_output(getattr(self.model, f"get_{self.tower}_features")(**inputs)).pooler_output
        return features[:, : getattr(self.model.config, "truncate_dim", None)]


def write_graph(
    model: nn.Module, tower: str, inputs: dict[str, Tensor], path: Path, *, fixed_length: bool = False
) -> Shapes:
    """Writes a tower, `text` or `image`, in float32 as an ONNX graph, traced with `inputs` of at least two rows;
    returns its inputs' shapes, whose free dimensions are `batch` and, unless texts have a `fixed_length`, `length`."""
    with requires("onnx", "onnxscript"):
        import onnx  # noqa: F401
        import onnx_ir
        import onnxscript  # noqa: F401
    second = [] if tower == "image" or fixed_length else ["length"]
    free: dict[str, list[str]] = {name: ["batch", *second][: value.dim()] for name, value in inputs.items()}
    dynamic = {name: dict.fromkeys(range(len(names)), Dim.DYNAMIC) for name, names in free.items()}
    with torch.no_grad(), _quietly():
        try:
            program = torch.export.export(Tower(model, tower), (inputs,), dynamic_shapes=(dynamic,))
            graph: Any = torch.onnx.export(
                program, dynamo=True, verbose=False, input_names=list(inputs), output_names=[TOWERS[tower][1]]
            )
        except Exception as error:
            # torch.export raises classes of its private modules, without a common base, for computations that
            # depend on the values in a tensor.
            if not type(error).__module__.startswith("torch."):
                raise
            told = f"the {tower} tower of this {type(model).__name__} cannot become an ONNX graph"
            raise ModelKindError(f"{told}: {first_line(error)}") from error
    shapes: Shapes = {}
    for value in graph.model.graph.inputs:
        names = free[value.name]
        shapes[value.name] = [*names, *inputs[value.name].shape[len(names) :]]
        value.shape = onnx_ir.Shape(shapes[value.name])
    for output in graph.model.graph.outputs:
        output.shape = onnx_ir.Shape(["batch", output.shape[1]])
    for node in graph.model.graph.all_nodes():  # which hold the paths of the modules that computed them
        for part in (node, *node.outputs):
            part.metadata_props.clear()
    graph.model.graph.metadata_props.clear()
    graph.save(path)
    return shapes


def convert(source: Path, target: Path, precision: str) -> None:
    """Writes a float32 graph in `fp16` or `int8` (weights by channel, dynamic activations); it still takes float32."""
    import onnx

    with _quietly():
        if precision == "fp16":
            from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

            # On processors, onnxruntime has no sums of float16 by ScatterElements, which ridge models need.
            in_float32 = [*DEFAULT_OP_BLOCK_LIST, "ScatterElements"]
            graph = convert_float_to_float16(onnx.load(source), keep_io_types=True, op_block_list=in_float32)
            large = graph.ByteSize() >= onnx.checker.MAXIMUM_PROTOBUF
            onnx.save(graph, target, save_as_external_data=large, location=f"{target.name}.data")
        else:
            from onnxruntime.quantization import QuantType, quantize_dynamic

            large = source.with_name(f"{source.name}.data").exists()
            types = {"op_types_to_quantize": _QUANTIZED, "weight_type": QuantType.QInt8}
            quantize_dynamic(source, target, per_channel=True, use_external_data_format=large, **types)


@contextmanager
def _quietly() -> Iterator[None]:
    """Hides the exporters' messages about their progress and deprecations."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def _write_graphs(embedder: Embedder, graphs: Path, precisions: list[str], identity: str | None) -> GraphSettings:
    """Writes both towers at all precisions, and compares each graph with the model."""
    model, processor = embedder.model, embedder.processor
    inputs: dict[str, Shapes] = {}
    differences: dict[str, dict[str, float]] = {name: {} for name in precisions}
    batches = {"text": _text_batches(embedder), "image": _image_batches(embedder)}
    with torch.no_grad():
        width = Tower(model, "text")(batches["text"][0]).shape[-1]
    if width < (embedder.truncate_dim or 0):
        raise InputError(f"truncate_dim={embedder.truncate_dim}: the embeddings have {width} dimensions")
    is_fixed = isinstance(processor, WordLevelProcessor) or _has_one_length(embedder)
    for tower, own in batches.items():
        first = graphs / graph_file(tower, "fp32")
        # Traced with two rows or more: a batch of one would be taken for a constant.
        inputs[tower] = write_graph(model, tower, own[1], first, fixed_length=is_fixed)
        for name in dict.fromkeys(["fp32", *precisions]):  # the others are made of the first, which must be right
            path = graphs / graph_file(tower, name)
            if name != "fp32":
                convert(first, path, name)
            difference = _largest_difference(model, tower, path, own)
            if name == "fp32" and difference > LARGEST_DIFFERENCE:
                told = f"the graph of the {tower} tower computes other embeddings than the model"
                raise InputError(f"{told}: a value differs by {difference:.1g}; nothing was exported")
            if name in precisions:
                differences[name][tower] = difference
        if "fp32" not in precisions:
            for file in graphs.glob(f"{first.name}*"):  # large weights have a file of their own
                file.unlink()
    length = inputs["text"]["input_ids"][1]
    return GraphSettings(
        width=width,
        inputs=inputs,
        precisions=differences,
        languages=language_tags(processor) if "language_ids" in inputs["text"] else (),
        text_length=length if isinstance(length, int) else None,
        model=identity,
    )


@torch.no_grad()
def _largest_difference(model: nn.Module, tower: str, path: Path, batches: list[dict[str, Tensor]]) -> float:
    """The largest absolute difference between the normalized embeddings of a graph and of its model."""
    session, module, largest = open_graph(path), Tower(model, tower), 0.0
    for inputs in batches:
        (found,) = session.run(None, {name: value.numpy() for name, value in inputs.items()})
        difference = float((normalize(torch.from_numpy(found)) - normalize(module(inputs).float())).abs().max())
        if not np.isfinite(difference):
            raise InputError(f"{path.name} computes NaN or infinity: leave out its precision")
        largest = max(largest, difference)
    return largest


def _text_batches(embedder: Embedder) -> list[dict[str, Tensor]]:
    """Batches of texts in all languages, as the processor makes them; words are padded to the largest length."""
    processor = embedder.processor
    if not isinstance(processor, WordLevelProcessor):
        samples = [list(SAMPLE_TEXTS[rows]) for rows in _TEXT_BATCHES]
        with counting_cut_texts():
            return [dict(embedder.process_texts(each, sample_languages(processor, len(each)))) for each in samples]
    captions = [text for text in SAMPLE_TEXTS if text.isascii()]
    samples = [captions[rows] or captions[:2] for rows in _TEXT_BATCHES]
    padded = {"padding": "max_length", "return_tensors": "pt"}
    return [dict(processor(text=each, language=sample_languages(processor, len(each)), **padded)) for each in samples]


def _has_one_length(embedder: Embedder) -> bool:
    """Returns whether all texts have the same number of tokens, in any language, as SigLIP's text tower needs it."""
    tags = dict.fromkeys(sample_languages(embedder.processor, len(SAMPLE_TEXTS)))
    inputs = [embedder.process_texts([text], [tag]) for text in ("x", SAMPLE_TEXTS[1]) for tag in tags]
    return len({each["input_ids"].shape[1] for each in inputs}) == 1


def _image_batches(embedder: Embedder) -> list[dict[str, Tensor]]:
    """Batches of drawn images."""
    random = np.random.default_rng(0)
    images = [drawn_image(random, *random.integers(40, 120, 2)) for _ in range(max(_IMAGE_BATCHES))]
    inputs = dict(embedder.processor(images=images, return_tensors="pt"))
    if list(inputs) != ["pixel_values"]:
        raise ModelKindError(f"a graph reads pixel_values; this image processor gives {', '.join(inputs)} (NaFlex)")
    return [{"pixel_values": inputs["pixel_values"][:count]} for count in _IMAGE_BATCHES]


def drawn_image(random: np.random.Generator, height: int, width: int) -> Image.Image:
    ramp = np.linspace(random.uniform(0, 200, 3), random.uniform(0, 200, 3), width)[None]
    return Image.fromarray((ramp + random.uniform(0, 50, (height, width, 3))).astype(np.uint8))


def _write_processor(embedder: Embedder, folder: Path) -> None:
    """Writes configuration and processor, and their files for transformers.js, without the code of babelens' own
    classes: graphs run without it, and babelens has it."""
    config, processor = embedder.model.config, embedder.processor
    for part in (config, processor, processor.image_processor):
        for key in ("auto_map", "custom_pipelines"):
            vars(part).pop(key, None)
    for part in (config, processor):
        part.save_pretrained(folder, **({"is_main_process": False} if hasattr(part, "export_code") else {}))
    settings = dict(processor.image_processor.to_dict())
    if hasattr(processor.image_processor, "auto_classes"):
        # It has CLIP's steps in the same order, and transformers.js has no other. Python's transformers reads the
        # settings in `processor_config.json` first.
        settings["image_processor_type"] = "CLIPImageProcessor"
    write_json(folder / "preprocessor_config.json", settings)


@contextmanager
def _destination(output: Path, source: Path) -> Iterator[Path]:
    """Yields a folder that becomes `output`; in the model's own, only graphs and `preprocessor_config.json` change."""
    if not (output.is_dir() and source.is_dir() and output.samefile(source)):
        with new_folder(output) as folder:
            yield folder
        return
    if not (output / "config.json").is_file():
        raise InputError(f"{output} is the folder of an adapter: name a new folder for the graphs of its model")
    with errors_naming(output):
        remove_unfinished(output)
        with TemporaryDirectory(prefix=SCRATCH, dir=output) as scratch:
            yield (folder := Path(scratch))
            graphs = output / GRAPH_FOLDER
            graphs.mkdir(exist_ok=True)
            names = tuple(graph_file(tower, precision) for tower in TOWERS for precision in PRECISIONS)
            for path in graphs.iterdir():
                if path.name.startswith(names):  # of an earlier export, maybe in other precisions
                    path.unlink()
            for path in (folder / GRAPH_FOLDER).iterdir():
                os.replace(path, graphs / path.name)
            os.replace(folder / "preprocessor_config.json", output / "preprocessor_config.json")

"""Exports a dual encoder: both towers as ONNX graphs, and beside them what prepares their inputs."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from ...modeling.modeling_smalr import SmalrModel
from ...processing.processing_per_language import WordLevelProcessor
from ...utils.errors import InputError, ModelKindError
from ...utils.files import atomic_file, errors_naming, locked, new_folder, remove_unfinished
from ...utils.identity import folder_identity
from ..embedder import Embedder
from ..sample_texts import TEXTS, language_tags, sample_inputs, sample_languages
from ..text_only import SentenceEncoder
from .graphs import Shapes, Tower, convert, free_dimensions, write_graph
from .model import GRAPH_FOLDER, PRECISIONS, SETTINGS_FILE, TOWERS, GraphSettings, graph_file, open_graph

# Batches on which graphs are compared: ranges of `TEXTS`, and numbers of images.
_TEXT_BATCHES = (slice(0, 1), slice(1, 3), slice(5, None))
_IMAGE_BATCHES = (1, 2, 5)
_OF_TOKENIZERS = ("input_ids", "attention_mask", "token_type_ids")
_LOGIT_DIFFERENCE = 1e-2  # of a logit of some tens


@dataclass(frozen=True)
class Exported:
    """What was exported.

    Args:
        folder: the folder.
        settings: what it states: inputs, and precisions with their differences.
        sizes: bytes of each graph, by precision and tower.
    """

    folder: Path
    settings: GraphSettings
    sizes: dict[str, dict[str, int]]


def export_onnx(
    source: str | Path,
    output: str | Path,
    *,
    precisions: Sequence[str] = ("fp32",),
    joint: bool = False,
    **loading: Any,
) -> Exported:
    """Writes a dual encoder as ONNX graphs, and compares them with it.

    Args:
        source: the model or an adapter: a folder, or a repository on the Hub.
        output: a new folder; or the folder of the model itself, which gets graphs beside its weights.
        precisions: of `fp32`, `fp16` and `int8`.
        joint: whether both towers are written as one graph, too, `model.onnx`, which is as large as both: pipelines of
            transformers.js read it.
        loading: what `Embedder.from_pretrained` takes, such as `trust_remote_code`. With a `truncate_dim`, the graphs
            compute the first dimensions of the embeddings alone.

    Examples:
        >>> export_onnx("runs/mural", "mural-onnx", precisions=["fp32", "int8"]).settings.precisions
        {'fp32': {'text': 2.4e-07, 'image': 3.6e-07}, 'int8': {'text': 0.011, 'image': 0.008}}
    """
    if unknown := [name for name in precisions if name not in PRECISIONS] or not precisions:
        raise InputError(f"precisions={unknown or []}: choose some of {', '.join(PRECISIONS)}")
    identity = _identity(source, loading)  # before it is loaded
    embedder = load_exportable(source, **loading)
    with _destination(Path(output), Path(source)) as folder:
        _write_beside(embedder, folder)
        graphs = folder / GRAPH_FOLDER
        graphs.mkdir()
        settings = _write_graphs(embedder, graphs, list(dict.fromkeys(precisions)))
        if joint:
            _write_joint(embedder, settings, graphs)
        settings = replace(settings, model=identity)
        _write_settings(settings, graphs)
        sizes = {
            name: {tower: _size(graphs / graph_file(tower, name)) for tower in (*settings.inputs, *["both"] * joint)}
            for name in settings.precisions
        }
    return Exported(Path(output), settings, sizes)


def _write_settings(settings: GraphSettings, graphs: Path) -> None:
    text = json.dumps(asdict(settings), ensure_ascii=False, indent=2)
    (graphs / SETTINGS_FILE).write_text(text + "\n", encoding="utf-8")


def _identity(source: str | Path, loading: dict[str, Any]) -> str | None:
    """The identity of the files of a model; None for a repository, beside whose graphs there are no weights."""
    return folder_identity(source, with_processor=False) if Path(source).is_dir() else None


def load_exportable(source: str | Path, **loading: Any) -> Embedder:
    """Loads a dual encoder in the form in which it is exported: on the processor, in float32."""
    embedder = Embedder.from_pretrained(source, device="cpu", dtype=torch.float32, **loading)
    if isinstance(embedder.model, SentenceEncoder):
        raise ModelKindError(
            f"{source} is an embedder of sentence-transformers, whose texts and images go through one model by that "
            "library's own steps: it has no towers of which there could be graphs. Load it with SentenceTransformer, "
            "whose backend='onnx' exports models of texts"
        )
    if isinstance(embedder.model, SmalrModel) and not embedder.model.config.compressed:
        embedder.model = embedder.model.compress()  # or else the graph computes all embeddings of words in every call
    if embedder.truncate_dim is not None:
        embedder.model.config.truncate_dim = embedder.truncate_dim
    embedder.model.eval().requires_grad_(False)
    return embedder


# ---- Graphs ----


def _write_graphs(embedder: Embedder, graphs: Path, precisions: list[str]) -> GraphSettings:
    """Writes both towers at all precisions, and compares each graph with the model."""
    make_batches = {"text": _text_batches, "image": _image_batches}
    batches = {tower: make_batches[tower](embedder) for tower in TOWERS}
    inputs: dict[str, Shapes] = {}
    differences: dict[str, dict[str, float]] = {name: {} for name in precisions}
    for tower, own in batches.items():
        inputs[tower], found = _write_tower(embedder, tower, own, graphs, precisions)
        for name in precisions:
            differences[name][tower] = found[name]
    config: Any = embedder.model.config
    with torch.no_grad():
        width = Tower(embedder.model, "text")(batches["text"][0]).shape[-1]
    if width < (embedder.truncate_dim or 0):
        raise InputError(f"truncate_dim={embedder.truncate_dim}: the embeddings have {width} dimensions")
    length = inputs["text"]["input_ids"][1]
    return GraphSettings(
        model_type=config.model_type,
        width=width,
        inputs=inputs,
        precisions=differences,
        languages=language_tags(embedder.processor) if "language_ids" in inputs["text"] else (),
        text_length=length if isinstance(length, int) else None,
    )


def _write_tower(
    embedder: Embedder, tower: str, batches: list[dict[str, Tensor]], graphs: Path, precisions: list[str]
) -> tuple[Shapes, dict[str, float]]:
    """Writes a tower at all precisions; returns the shapes of its inputs, and the largest difference of each graph."""
    is_by_words = isinstance(embedder.processor, WordLevelProcessor)
    fixed = tower == "text" and (is_by_words or _has_one_length(embedder))
    traced = batches[1]  # of two rows or more: a batch of one would be taken for a constant
    differences: dict[str, float] = {}
    with TemporaryDirectory(prefix=".fp32-", dir=graphs) as scratch:
        first = Path(scratch, graph_file(tower, "fp32"))
        free = free_dimensions(tower, traced, fixed_length=fixed)
        shapes = write_graph(embedder.model, tower, traced, free, first)
        for name in dict.fromkeys(["fp32", *precisions]):  # the others are made of the first, which must be right
            path = first if name == "fp32" else graphs / graph_file(tower, name)
            if name != "fp32":
                convert(first, path, name)
            session = open_graph(path, torch.get_num_threads())
            differences[name] = largest_difference(embedder.model, tower, session, batches, path.name)
            if name == "fp32" and differences[name] > LARGEST_DIFFERENCE:
                raise InputError(
                    f"the graph of the {tower} tower computes other embeddings than the model: a value differs by "
                    f"{differences[name]:.1g}, more than {LARGEST_DIFFERENCE:g}; nothing was exported"
                )
        if "fp32" in precisions:
            for file in Path(scratch).glob(f"{first.name}*"):  # with a file of weights, if they are large
                file.rename(graphs / file.name)
    return shapes, differences


def _write_joint(embedder: Embedder, settings: GraphSettings, graphs: Path) -> None:
    """Writes both towers as one graph at all precisions."""
    if set(settings.inputs["text"]) - set(_OF_TOKENIZERS) or "pixel_values" not in settings.inputs["image"]:
        raise ModelKindError(
            f"pipelines of transformers.js give a model tokens and pixels, and this {type(embedder.model).__name__} "
            "needs the language of texts, or words, or features: leave out the joint graph"
        )
    inputs = _text_batches(embedder)[1] | _image_batches(embedder)[2]
    free = free_dimensions("both", inputs, fixed_length=settings.text_length is not None)
    with TemporaryDirectory(prefix=".fp32-", dir=graphs) as scratch, torch.no_grad():
        first = Path(scratch, graph_file("both", "fp32"))
        write_graph(embedder.model, "both", inputs, free, first)
        (found, *_) = open_graph(first, torch.get_num_threads()).run(None, {k: v.numpy() for k, v in inputs.items()})
        difference = float(np.abs(found - embedder.model(**inputs).logits_per_image.numpy()).max())
        if not difference <= _LOGIT_DIFFERENCE:
            raise InputError(f"the graph of both towers computes other logits: one differs by {difference:.1g}")
        for name in settings.precisions:
            if name != "fp32":
                convert(first, graphs / graph_file("both", name), name)
        if "fp32" in settings.precisions:
            for file in Path(scratch).glob(f"{first.name}*"):
                file.rename(graphs / file.name)


def _text_batches(embedder: Embedder) -> list[dict[str, Tensor]]:
    """Batches of texts in all languages, as the processor makes them; those of words padded to the largest length."""
    processor = embedder.processor
    if not isinstance(processor, WordLevelProcessor):
        return [sample_inputs(embedder, TEXTS[rows]) for rows in _TEXT_BATCHES]
    tags = language_tags(processor) or ("en", "de")
    captions = [text for text in TEXTS if text.isascii()]
    batches = []
    for rows in _TEXT_BATCHES:
        texts = captions[rows] or captions[:2]
        languages = [tags[index % len(tags)] for index in range(len(texts))]
        made = processor(text=texts, language=languages, padding="max_length", return_tensors="pt")
        batches.append(dict(made))
    return batches


def _has_one_length(embedder: Embedder) -> bool:
    """Whether all texts have the same number of tokens, in any language, as SigLIP's text tower needs it."""
    tags = dict.fromkeys(sample_languages(embedder.processor, len(TEXTS)))
    inputs = [embedder.process_texts([text], [tag]) for text in ("x", TEXTS[1]) for tag in tags]
    return len({each["input_ids"].shape[1] for each in inputs}) == 1


def _image_batches(embedder: Embedder) -> list[dict[str, Tensor]]:
    """Batches of drawn images, or of features for a model without a backbone."""
    rng = np.random.default_rng(0)
    if getattr(embedder.model, "vision_model", embedder) is None:
        width = embedder.model.image_feature_size
        return [{"image_features": torch.from_numpy(rng.random((n, width), np.float32))} for n in _IMAGE_BATCHES]
    images = []
    for _ in range(max(_IMAGE_BATCHES)):
        height, width = rng.integers(40, 120, 2)
        ramp = np.linspace(rng.uniform(0, 200, 3), rng.uniform(0, 200, 3), width)[None]
        images.append(Image.fromarray((ramp + rng.uniform(0, 50, (height, width, 3))).astype(np.uint8)))
    inputs = dict(embedder.processor(images=images, return_tensors="pt"))
    if list(inputs) != ["pixel_values"]:
        raise ModelKindError(
            f"the image processor of this {type(embedder.model).__name__} gives {', '.join(inputs)}: images of sizes "
            "of their own (NaFlex) have no ONNX graph"
        )
    return [{"pixel_values": inputs["pixel_values"][:count]} for count in _IMAGE_BATCHES]


# ---- Files ----


def _write_beside(embedder: Embedder, folder: Path) -> None:
    """Writes configuration and processor, and what transformers.js reads of them."""
    embedder.model.config.save_pretrained(folder)
    embedder.processor.save_pretrained(folder)
    if hasattr(embedder.model, "auto_classes"):
        _remove_code(folder)
    settings = dict(embedder.processor.image_processor.to_dict())
    if settings.pop("auto_map", None):
        # Our own one has CLIP's steps in the same order, and transformers.js has no other. Python's transformers reads
        # the settings in `processor_config.json` first.
        settings["image_processor_type"] = "CLIPImageProcessor"
    text = json.dumps(settings, indent=2, sort_keys=True)
    (folder / "preprocessor_config.json").write_text(text + "\n", encoding="utf-8")


def _remove_code(folder: Path) -> None:
    """Removes the code of babelens' own classes: graphs run without it, and babelens has it."""
    for path in folder.glob("*.py"):
        path.unlink()
    for name in ("config.json", "processor_config.json"):
        settings = json.loads((folder / name).read_text(encoding="utf-8"))
        for part in (settings, settings.get("image_processor") or {}):
            for key in ("auto_map", "custom_pipelines"):
                part.pop(key, None)
        (folder / name).write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")


@contextmanager
def _destination(output: Path, source: Path) -> Iterator[Path]:
    """Yields a folder to write to, which becomes `output`; of the model's own folder, only graphs and
    `preprocessor_config.json` are replaced."""
    if not (output.is_dir() and source.is_dir() and output.samefile(source)):
        with new_folder(output) as folder:
            yield folder
        return
    if not (output / "config.json").is_file():
        raise InputError(f"{output} is the folder of an adapter: name a new folder for the graphs of its model")
    with locked(output), errors_naming(output):
        remove_unfinished(output)
        with TemporaryDirectory(prefix=".unfinished-", dir=output) as scratch:
            folder = Path(scratch)
            yield folder
            graphs = output / GRAPH_FOLDER
            graphs.mkdir(exist_ok=True)
            names = tuple(graph_file(tower, precision) for tower in (*TOWERS, "both") for precision in PRECISIONS)
            for path in graphs.iterdir():
                if path.name.startswith(names):  # of an earlier export, maybe in other precisions
                    path.unlink()
            for path in (folder / GRAPH_FOLDER).iterdir():
                os.replace(path, graphs / path.name)
            for path in folder.glob("preprocessor_config.json"):
                with atomic_file(output / path.name) as unfinished:
                    shutil.copy(path, unfinished)


def _size(graph: Path) -> int:
    return sum(file.stat().st_size for file in graph.parent.glob(f"{graph.name}*"))


# ---- Compares graphs with the model that they were made of, on batches of several sizes ----

# Largest difference of a value of an embedding of unit length, of a graph in float32.
LARGEST_DIFFERENCE = 1e-4


@torch.no_grad()
def largest_difference(
    model: nn.Module, tower: str, session: Any, batches: Iterable[Mapping[str, Tensor]], called: str
) -> float:
    """Returns the largest difference of any value of the normalized embeddings of a graph from those of its model.

    Args:
        model: the dual encoder.
        tower: `text` or `image`.
        session: the graph, opened by onnxruntime.
        batches: inputs of the tower.
        called: name of the graph in errors.
    """
    largest = 0.0
    module = Tower(model, tower)
    for inputs in batches:
        expected = _normalized(module(dict(inputs)).float().numpy())
        (found,) = session.run(None, {name: value.numpy() for name, value in inputs.items()})
        difference = float(np.abs(_normalized(found) - expected).max())
        if not np.isfinite(difference):
            raise InputError(f"{called} computes NaN or infinity, or embeddings of length 0: leave out its precision")
        largest = max(largest, difference)
    return largest


def _normalized(features: np.ndarray) -> np.ndarray:
    return features / np.linalg.norm(features, axis=-1, keepdims=True)

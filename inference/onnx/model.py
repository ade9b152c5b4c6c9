"""The graphs of an exported folder as the model of an `Embedder`; and the layout of the folder:

onnx/text_model.onnx, onnx/vision_model.onnx    the towers in float32; the names are transformers.js's
onnx/…_fp16.onnx, onnx/…_quantized.onnx         the same in float16, and with weights of 8 bits
onnx/graphs.json                                the inputs of the graphs (`GraphSettings`)
config.json, …, preprocessor_config.json        the configuration and the processor, for transformers.js too
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import AutoProcessor, PreTrainedConfig, ProcessorMixin
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ...utils.errors import InputError, ModelFolderError, first_line, requires
from ...utils.files import optional_file
from ...utils.identity import folder_identity
from ...utils.pretrained import explained, load_config, load_processor, located

logger = logging.getLogger(__name__)

GRAPH_FOLDER = "onnx"
SETTINGS_FILE = "graphs.json"
# Precisions, with the suffixes of their files.
PRECISIONS = {"fp32": "", "fp16": "_fp16", "int8": "_quantized"}
# Towers, with the names of their files and outputs, as of CLIP's towers in transformers.js.
TOWERS = {"text": ("text_model", "text_embeds"), "image": ("vision_model", "image_embeds")}
_FORMAT = 1


@dataclass(frozen=True)
class GraphSettings:
    """The content of `onnx/graphs.json`."""

    width: int
    inputs: dict[str, dict[str, list[str | int]]]  # tower -> input -> its shape, with names for free dimensions
    precisions: dict[str, dict[str, float]]  # -> tower -> the largest difference of a value from the model's
    languages: Sequence[str] = ()  # in the order of their `language_ids`, if that is an input
    text_length: int | None = None  # tokens or words that every text has, or `None` if it is free
    model: str | None = None  # the exported folder's identity (`folder_identity`, without the processor)
    format: int = _FORMAT

    @classmethod
    def from_file(cls, path: Path, source: str) -> Self:
        try:
            given = json.loads(path.read_text("utf-8"))
            if given["format"] > _FORMAT:
                raise ModelFolderError(f"{source} was exported by a later version of babelens: export it again")
            return cls(**given)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelFolderError(f"{path} is damaged ({error}): export the model again") from error

    def check_weights(self, folder: Path) -> None:
        """Checks that the graphs were made of the weights in the folder that has `onnx/`, if there are any."""
        identity = folder_identity(folder, with_processor=False)
        if identity is not None and self.model is None:
            logger.warning("the graphs in %s do not state their weights: export the model again", folder)
        elif identity is not None and identity != self.model:
            told = f"the ONNX graphs in {folder} have other weights or another configuration than the model there"
            raise InputError(f"{told}: babelens export {folder} --output {folder} writes them again")


def graph_file(tower: str, precision: str) -> str:
    return f"{TOWERS[tower][0]}{PRECISIONS[precision]}.onnx"


def open_graph(path: Path) -> Any:
    """Opens a graph with onnxruntime on the processor, with as many threads as torch has."""
    with requires("onnxruntime"):
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # only errors
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors share no other class
        raise ModelFolderError(f"{path} is damaged: export the model again ({first_line(error)})") from error


class OnnxDualEncoder(nn.Module):
    """A dual encoder's towers, `sessions` of onnxruntime; the files of the graphs identify them (`model_identity`)."""

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(
        self, config: PreTrainedConfig, settings: GraphSettings, sessions: dict[str, Any], weight_files: list[Path]
    ) -> None:
        super().__init__()
        self.config, self.settings, self.weight_files = config, settings, weight_files
        self._sessions = sessions

    def get_text_features(self, input_ids: Tensor, **others: Tensor) -> BaseModelOutputWithPooling:
        """The features of texts, as `pooler_output`, [N, d]; takes the inputs of the graph, shorter ones too."""
        inputs = {"input_ids": input_ids, **others}
        if length := self.settings.text_length:
            for name, value in inputs.items():
                if value.dim() > 1:  # language ids are [N]
                    missing = length - value.shape[1]
                    inputs[name] = nn.functional.pad(value, (0, 0) * (value.dim() - 2) + (0, missing))
        return self._run("text", inputs)

    def get_image_features(self, pixel_values: Tensor) -> BaseModelOutputWithPooling:
        """The features of images, as `pooler_output`, [N, d]."""
        return self._run("image", {"pixel_values": pixel_values})

    def _run(self, tower: str, inputs: dict[str, Tensor]) -> BaseModelOutputWithPooling:
        taken = self.settings.inputs[tower]
        (found,) = self._sessions[tower].run(None, {name: inputs[name].numpy() for name in taken})
        return BaseModelOutputWithPooling(pooler_output=torch.from_numpy(found))


def load_onnx(
    folder_or_repo: str | Path, *, precision: str | None = None, **loading: Any
) -> tuple[OnnxDualEncoder, ProcessorMixin]:
    """Loads graphs of `export_onnx`, by default the most exact, and the processor, with `loading` as its arguments."""
    source, loading = str(folder_or_repo), located(folder_or_repo, **loading)

    def file(name: str) -> Path | None:
        with explained(source, loading):
            return optional_file(source, f"{GRAPH_FOLDER}/{name}", loading)

    if (path := file(SETTINGS_FILE)) is None:
        raise ModelFolderError(f"{source} has no ONNX graphs: babelens export {source} --output FOLDER writes them")
    settings = GraphSettings.from_file(path, source)
    settings.check_weights(path.parent.parent)
    have = [name for name in PRECISIONS if name in settings.precisions]
    if precision is not None and precision not in have:
        raise InputError(f"{source} has graphs in {', '.join(have)}, and none in {precision!r}")
    sessions, files = {}, list[Path]()
    for tower in settings.inputs:
        name = graph_file(tower, precision or have[0])
        if (graph := file(name)) is None:
            raise ModelFolderError(f"{source}: {GRAPH_FOLDER}/{name} is missing: export the model again")
        weights = file(f"{name}.data")  # weights of more than 2 GB have their own file
        files += [graph, *([weights] if weights else [])]
        sessions[tower] = open_graph(graph)
    config = load_config(source, **loading)
    processor = load_processor(AutoProcessor, source, **loading)
    return OnnxDualEncoder(config, settings, sessions, files), processor

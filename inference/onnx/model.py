"""The graphs of an exported folder as the model of an `Embedder`, with its processor."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoProcessor, PreTrainedConfig, ProcessorMixin
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ...configuration.errors import ModelFolderError
from ...configuration.hub_code import optional_file
from ...configuration.pretrained import check_reading, explained, load_config, load_processor, located
from .graph_folder import GRAPH_FOLDER, SETTINGS_FILE, GraphSettings, graph_file, not_exported, open_graph


class OnnxDualEncoder(nn.Module):
    """The towers of a dual encoder, run by onnxruntime on the processor.

    Args:
        config: configuration of the model that was exported.
        settings: what its graphs take.
        sessions: the graphs by tower, opened by onnxruntime.
        weight_files: the files of the graphs, which identify them (`model_identity`).
    """

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(
        self,
        config: PreTrainedConfig,
        settings: GraphSettings,
        sessions: dict[str, Any],
        weight_files: Sequence[Path] = (),
    ) -> None:
        super().__init__()
        self.config, self.settings, self.weight_files = config, settings, weight_files
        self._sessions = sessions

    def get_text_features(self, input_ids: Tensor, **others: Tensor) -> BaseModelOutputWithPooling:
        """The features of texts, as `pooler_output`, [N, d]; inputs are those of the graph."""
        inputs = {"input_ids": input_ids, **others}
        if length := self.settings.text_length:
            inputs = {name: _lengthened(value, length) for name, value in inputs.items()}
        return self._run("text", inputs)

    def get_image_features(self, pixel_values: Tensor) -> BaseModelOutputWithPooling:
        """The features of images, as `pooler_output`, [N, d]."""
        return self._run("image", {"pixel_values": pixel_values})

    def _run(self, tower: str, inputs: dict[str, Tensor]) -> BaseModelOutputWithPooling:
        taken = self.settings.inputs[tower]
        (found,) = self._sessions[tower].run(None, {name: inputs[name].numpy() for name in taken})
        return BaseModelOutputWithPooling(pooler_output=torch.from_numpy(found))


class OnnxFeatureEncoder(OnnxDualEncoder):
    """The same of a model without a backbone, whose images are given as features."""

    def get_image_features(self, image_features: Tensor) -> BaseModelOutputWithPooling:
        """The embeddings of features of images, as `pooler_output`, [N, d]."""
        return self._run("image", {"image_features": image_features})


def _lengthened(values: Tensor, length: int) -> Tensor:
    """Pads [N, T, …] with zeros to the length that a graph has; language ids [N] stay."""
    if values.dim() < 2 or values.shape[1] == length:
        return values
    padded = values.new_zeros(values.shape[0], length, *values.shape[2:])
    padded[:, : values.shape[1]] = values
    return padded


def load_onnx(
    folder_or_repo: str | Path, *, precision: str | None = None, **loading: Any
) -> tuple[OnnxDualEncoder, ProcessorMixin]:
    """Loads the graphs of an exported folder, with the processor.

    Args:
        folder_or_repo: a folder or a repository on the Hub that `export_onnx` wrote, or a model's folder with graphs
            in it.
        precision: `fp32`, `fp16` or `int8`; by default the most exact that is there.
        loading: what `from_pretrained` of processors takes, such as `revision`.

    Raises:
        ArgumentError: if there are no graphs of this precision.
        MissingExtraError: without onnxruntime.
        ModelFolderError: if there are no graphs, or a file is missing or damaged.
        ModelMismatchError: if they are of other weights than those in the same folder.
    """
    source, loading = str(folder_or_repo), located(folder_or_repo, **loading)
    path = _file(source, SETTINGS_FILE, loading)
    if path is None:
        raise not_exported(source)
    settings = GraphSettings.from_file(path, source)
    settings.check_weights(path.parent.parent)
    precision = settings.chosen_precision(precision, source)
    sessions, files = {}, list[Path]()
    for tower in settings.inputs:
        name = graph_file(tower, precision)
        if (graph := _file(source, name, loading)) is None:
            raise ModelFolderError(f"{source}: {GRAPH_FOLDER}/{name} is missing: export the model again")
        beside = _file(source, f"{name}.data", loading)  # weights of more than 2 GB lie beside the graph
        files += [graph, *([beside] if beside else [])]
        sessions[tower] = open_graph(graph, torch.get_num_threads())
    config = load_config(source, **loading)
    processor = load_processor(AutoProcessor, source, **loading)
    check_reading(processor, source)
    kind = OnnxFeatureEncoder if "image_features" in settings.inputs["image"] else OnnxDualEncoder
    return kind(config, settings, sessions, files), processor


def _file(source: str, name: str, loading: dict[str, Any]) -> Path | None:
    with explained(source, loading):
        return optional_file(source, f"{GRAPH_FOLDER}/{name}", loading)

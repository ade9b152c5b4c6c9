"""The towers of a dual encoder as ONNX graphs, by `torch.onnx.export` of what `torch.export` makes of them.

A graph takes any number of texts or images, and texts of any length. Two kinds of model are limited: texts of SMALR
and LIWE always have the same length, because torch.export unrolls a GRU over its positions; and image processors that
give every image a size of its own (NaFlex of SigLIP 2) have no graph.
"""

import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from ...modeling.modeling_dual_encoder import as_output
from ...utils.errors import MissingExtraError, ModelKindError
from .model import JOINT, TOWERS

Shapes = dict[str, list[str | int]]
# Which operations get weights of 8 bits. Convolutions do not: onnxruntime has no fast one of 8 bits on processors, and
# in browsers it has none.
_QUANTIZED = ("MatMul", "Gemm", "Gather")
_NOISY = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")


class Tower(nn.Module):
    """One tower of a dual encoder as a module: it maps inputs by name to features [N, d], which are not normalized,
    and are cut to the `truncate_dim` of the model's configuration.

    Args:
        model: the dual encoder.
        tower: `text` or `image`; or `both`, whose outputs are those of `JOINT`.
    """

    def __init__(self, model: nn.Module, tower: str) -> None:
        super().__init__()
        self.model, self.tower = model, tower

    def forward(self, inputs: dict[str, Tensor]) -> Any:
        """Returns the features of texts or images, [N, d]."""
        if self.tower == "both":
            output = self.model(**inputs)
            return tuple(output[name] for name in JOINT)
        features = as_output(getattr(self.model, f"get_{self.tower}_features")(**inputs)).pooler_output
        width = getattr(self.model.config, "truncate_dim", None)
        return features if width is None else features[:, :width]


def free_dimensions(tower: str, inputs: Mapping[str, Tensor], *, fixed_length: bool) -> dict[str, list[str | None]]:
    """Returns the names of the dimensions of each input that may differ from batch to batch; `None` is fixed."""
    free: dict[str, list[str | None]] = {}
    for name, value in inputs.items():
        kind = "image" if name == "pixel_values" else "text"
        first = f"{kind}s" if tower == "both" else "batch"
        second = "length" if tower != "image" and kind == "text" and not fixed_length else None
        free[name] = [(first, second)[d] if d < 2 else None for d in range(value.dim())]
    return free


def write_graph(
    model: nn.Module, tower: str, inputs: dict[str, Tensor], free: dict[str, list[str | None]], path: Path
) -> Shapes:
    """Writes a tower in float32 as an ONNX graph.

    Args:
        model: the dual encoder, in eval mode and float32.
        tower: `text`, `image` or `both`.
        inputs: inputs to trace it with, of at least two rows; for `both`, of other numbers of texts than of images.
        free: names of the free dimensions (`free_dimensions`).
        path: where to write the graph.

    Returns:
        The shapes of its inputs.
    """
    try:
        import onnx  # noqa: F401
        import onnx_ir
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("exporting a model needs onnx and onnxscript: pip install onnx onnxscript") from error
    outputs = JOINT if tower == "both" else {TOWERS[tower][1]: ("batch", None)}
    dynamic = {name: {d: Dim.DYNAMIC for d, each in enumerate(names) if each} for name, names in free.items()}
    with torch.no_grad(), _quietly():
        try:
            program = torch.export.export(Tower(model, tower), (inputs,), dynamic_shapes=(dynamic,))
            graph: Any = torch.onnx.export(
                program, dynamo=True, verbose=False, input_names=list(inputs), output_names=list(outputs)
            )
        except Exception as error:
            # torch.export raises classes of its private modules, of no common base, where a model computes what
            # depends on the values in a tensor.
            if not type(error).__module__.startswith("torch."):
                raise
            raise _no_graph(model, tower, error) from error
    shapes: Shapes = {}
    for value in graph.model.graph.inputs:
        names = free[value.name]
        shapes[value.name] = [name or int(size) for name, size in zip(names, inputs[value.name].shape, strict=True)]
        value.shape = onnx_ir.Shape(shapes[value.name])
    for output, (first, second) in zip(graph.model.graph.outputs, outputs.values(), strict=True):
        output.shape = onnx_ir.Shape([first, second or output.shape[1]])
    for node in graph.model.graph.all_nodes():  # which hold the paths of the modules that computed them
        node.metadata_props.clear()
        for value in node.outputs:
            value.metadata_props.clear()
    graph.model.graph.metadata_props.clear()
    graph.save(path)
    return shapes


def _no_graph(model: nn.Module, tower: str, error: Exception) -> ModelKindError:
    line = str(error).strip().splitlines()[0]
    return ModelKindError(f"the {tower} tower of this {type(model).__name__} cannot become an ONNX graph: {line}")


def convert(source: Path, target: Path, precision: str) -> None:
    """Writes a graph in another precision; it still takes and gives float32.

    Args:
        source: the graph in float32.
        target: the file to write.
        precision: `fp16`; or `int8`, for weights of 8 bits with scales for each channel, and activations that are
            quantized as they come (dynamic quantization).
    """
    import onnx

    with _quietly(), _tools():
        if precision == "fp16":
            from onnxruntime.transformers.float16 import convert_float_to_float16

            graph = convert_float_to_float16(onnx.load(source), keep_io_types=True)
            large = graph.ByteSize() >= onnx.checker.MAXIMUM_PROTOBUF
            onnx.save(graph, target, save_as_external_data=large, location=f"{target.name}.data")
            return
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=list(_QUANTIZED),
            per_channel=True,
            weight_type=QuantType.QInt8,
            use_external_data_format=source.with_name(f"{source.name}.data").exists(),
        )


@contextmanager
def _tools() -> Iterator[None]:
    """Makes onnxruntime's tools find each other, which they do by `sys.path` alone; it is restored afterwards, because
    their modules have names such as `benchmark`."""
    paths = list(sys.path)
    import onnxruntime.transformers

    sys.path.append(str(Path(onnxruntime.transformers.__file__).parent))
    try:
        yield
    finally:
        sys.path[:] = paths


@contextmanager
def _quietly() -> Iterator[None]:
    """Hides what the exporters report about their own progress and deprecations."""
    loggers = [logging.getLogger(name) for name in (*_NOISY, None)]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)

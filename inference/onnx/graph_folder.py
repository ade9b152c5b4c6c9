"""The layout of a folder of ONNX graphs, and how its files are read. This module imports neither torch nor
transformers, so that a query can be encoded without waiting for them.

    onnx/text_model.onnx, onnx/vision_model.onnx    the towers in float32; the names are those of transformers.js
    onnx/…_fp16.onnx, onnx/…_quantized.onnx         the same in float16, and with weights of 8 bits
    onnx/graphs.json                                what the graphs take, and how texts are read (`GraphSettings`)
    config.json, tokenizer.json, …                  the configuration and the processor of the model
    preprocessor_config.json                        its image processor, as transformers.js reads it
"""

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ...configuration.errors import ArgumentError, MissingExtraError, ModelFolderError, ModelMismatchError
from ...configuration.identity import folder_identity

logger = logging.getLogger(__name__)

GRAPH_FOLDER = "onnx"
SETTINGS_FILE = "graphs.json"
# Precisions, with what ends the names of their files.
PRECISIONS = {"fp32": "", "fp16": "_fp16", "int8": "_quantized"}
# Towers, with the names of their files and of their outputs, which are those of CLIP's towers in transformers.js.
TOWERS = {"text": ("text_model", "text_embeds"), "image": ("vision_model", "image_embeds")}
_FORMAT = 1


@dataclass(frozen=True)
class TokenizerSettings:
    """How one tokenizer reads texts.

    Args:
        file: its `tokenizer.json`, below the exported folder.
        max_length: number of tokens at which texts are cut.
        padding_id: id of the padding token.
        cut_side: where texts are cut, `right` or `left`.
        prompt: what is put before every text.
        padded_length: length to which its texts are padded before others join them, or `None`.
    """

    file: str
    max_length: int
    padding_id: int
    cut_side: str = "right"
    prompt: str = ""
    padded_length: int | None = None


@dataclass(frozen=True)
class TextReading:
    """How texts become the inputs of the text tower.

    Args:
        tokenizers: one, or two: the first reads the texts with language id 0, the second all others.
        languages: the languages in the order of their ids; empty if texts may be in any language.
        native_language: the language with id 0 where all others have id 1, or `None`.
        padded_length: length to which all texts are padded; `None` pads to the longest of a batch.
        padding_side: `right` or `left`.
    """

    tokenizers: tuple[TokenizerSettings, ...]
    languages: tuple[str, ...] = ()
    native_language: str | None = None
    padded_length: int | None = None
    padding_side: str = "right"


@dataclass(frozen=True)
class GraphSettings:
    """What `onnx/graphs.json` states.

    Args:
        model_type: kind of the model.
        width: width of the embeddings.
        inputs: of each tower, the names of its inputs with their shapes; a name stands for a free dimension.
        precisions: the precisions of the graphs in the folder, with the largest difference of an embedding's value
            from the model's, by tower.
        languages: the languages in the order of their `language_ids`; empty for a model without that input.
        text_length: number of tokens or words that every batch of texts has, or `None` if it is free.
        reading: how texts are read, or `None` if it cannot be expressed without the processor.
        no_reading: why it cannot.
        model: the identity of the folder that was exported (`folder_identity`, without the processor), or `None` if it
            is not known, as in what earlier versions exported.
    """

    model_type: str
    width: int
    inputs: dict[str, dict[str, list[str | int]]]
    precisions: dict[str, dict[str, float]]
    languages: tuple[str, ...] = ()
    text_length: int | None = None
    reading: TextReading | None = None
    no_reading: str | None = None
    model: str | None = None
    format: int = _FORMAT

    @classmethod
    def from_file(cls, path: Path, source: str) -> Self:
        """Reads the settings.

        Args:
            path: `onnx/graphs.json`.
            source: the folder or repository, for messages.

        Raises:
            ModelFolderError: if the file is missing, damaged, or of a later version.
        """
        try:
            given = json.loads(path.read_text("utf-8"))
            if given["format"] > _FORMAT:
                raise ModelFolderError(f"{source} was exported by a later version of babelens: export it again")
            if reading := given["reading"]:
                tokenizers = tuple(TokenizerSettings(**each) for each in reading.pop("tokenizers"))
                languages = tuple(reading.pop("languages"))
                given["reading"] = TextReading(tokenizers=tokenizers, languages=languages, **reading)
            given["languages"] = tuple(given["languages"])
            return cls(**given)
        except FileNotFoundError as error:
            raise not_exported(source) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelFolderError(f"{path} is damaged ({error}): export the model again") from error

    def check_weights(self, folder: Path) -> None:
        """Checks that the graphs are those of the weights in the same folder, if there are any.

        Args:
            folder: the folder that has `onnx/`.

        Raises:
            ModelMismatchError: if they are of other weights, or of another configuration.
        """
        beside = folder_identity(folder, with_processor=False)
        if beside is not None and self.model is None:
            logger.warning("the graphs in %s do not state of which weights they are: export the model again", folder)
        elif beside is not None and beside != self.model:
            raise ModelMismatchError(
                f"the ONNX graphs in {folder} are of other weights or another configuration than those beside them: "
                f"babelens export {folder} --output {folder} writes them again"
            )

    def chosen_precision(self, precision: str | None, source: str) -> str:
        """Returns a precision that the folder has: the given one, or else its most exact.

        Raises:
            ArgumentError: if it does not have the given one.
        """
        have = [name for name in PRECISIONS if name in self.precisions]
        if precision is not None and precision not in have:
            raise ArgumentError(f"{source} has graphs in {', '.join(have)}, and none in {precision!r}")
        return have[0] if precision is None else precision


def not_exported(source: str) -> ModelFolderError:
    """Returns the error for a folder without graphs."""
    return ModelFolderError(
        f"{source} has no ONNX graphs ({GRAPH_FOLDER}/{SETTINGS_FILE}): babelens export {source} --output FOLDER "
        "writes them"
    )


def graph_file(tower: str, precision: str) -> str:
    """Returns the name of a tower's graph."""
    return f"{TOWERS[tower][0]}{PRECISIONS[precision]}.onnx"


def open_graph(path: Path, threads: int | None = None) -> Any:
    """Opens a graph with onnxruntime, on the processor.

    Args:
        path: the graph.
        threads: number of threads; by default OMP_NUM_THREADS, or else one for each core.

    Raises:
        MissingExtraError: without onnxruntime.
        ModelFolderError: if the graph is missing or damaged.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("running ONNX graphs needs onnxruntime: pip install 'babelens[onnx]'") from error
    if not path.is_file():
        raise ModelFolderError(f"{path} is missing: export the model again")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or int(os.environ.get("OMP_NUM_THREADS") or 0)
    options.log_severity_level = 3  # errors alone
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors share no other class
        first = str(error).strip().splitlines()[0]
        raise ModelFolderError(
            f"{path} is no ONNX graph, or a damaged one: export the model again ({first})"
        ) from error

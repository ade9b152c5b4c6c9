"""Checkpoints of OpenAI's CLIP and of the MLA authors' code as folders, for `babelens convert`."""

import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
import typer
from torch import Tensor
from transformers import (
    AutoTokenizer,
    CLIPProcessor,
    PreTrainedModel,
    ProcessorMixin,
    VisionTextDualEncoderProcessor,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from ...configuration.errors import ModelFolderError
from ...configuration.pretrained import first_line, load_processor
from ...modeling.convert_mla import clip_from_openai, mla_from_openai
from ...processing.processing_mla import MlaProcessor, closing_token_id
from ...trainers.saving import atomic_directory, prepare_saving

_KEYS = ("state_dict", "model_state_dict", "model")  # under which training code keeps the weights


def convert_mla(checkpoint: Path, output: Path, tokenizer: str, multilingual_tokenizer: str) -> None:
    """Writes the folder of a checkpoint of MLA; arguments as those of the command."""
    weights = read_weights(checkpoint)
    native_tokenizer, multilingual = (
        load_processor(AutoTokenizer, each) for each in (tokenizer, multilingual_tokenizer)
    )
    ends = {"sep_token_id": closing_token_id(multilingual), "end_token_id": native_tokenizer.eos_token_id}
    model = _converted(checkpoint, mla_from_openai, weights, **ends)
    native = _clip_processor(model.config.base_config, native_tokenizer)
    _check_size(checkpoint, multilingual_tokenizer, len(multilingual), model.config.vocab_size)
    _check_size(checkpoint, tokenizer, len(native_tokenizer), model.config.base_config.text_config.vocab_size)
    languages = {"native_language": model.config.native_language, "languages": model.config.languages}
    _write(model, MlaProcessor.for_native(model.config.base_config, native, multilingual, **languages), output)


def convert_clip(checkpoint: Path, output: Path, tokenizer: str) -> None:
    """Writes the folder of a checkpoint of CLIP; arguments as those of the command."""
    weights, native_tokenizer = read_weights(checkpoint), load_processor(AutoTokenizer, tokenizer)
    model = _converted(checkpoint, clip_from_openai, weights, end_token_id=native_tokenizer.eos_token_id)
    _check_size(checkpoint, tokenizer, len(native_tokenizer), model.config.text_config.vocab_size)
    _write(model, _clip_processor(model.config, native_tokenizer), output)


def read_weights(file: Path) -> dict[str, Tensor]:
    """The state dict of a checkpoint, in float32: of a saved dictionary, also one within it (`state_dict`), or of
    OpenAI's TorchScript archives.

    Raises:
        ModelFolderError: for a file that holds no weights.
    """
    try:
        held: Any = _archived(file) if _is_archive(file) else torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # unpickling other bytes can raise anything
        reason = first_line(error)
        raise ModelFolderError(f"{file} is no checkpoint of weights alone: {reason}") from error
    for key in _KEYS:
        if isinstance(held, dict) and isinstance(held.get(key), dict):
            held = held[key]
    if not isinstance(held, dict) or not any(isinstance(value, Tensor) for value in held.values()):
        raise ModelFolderError(f"{file} holds no weights by their names")
    tensors = {name.removeprefix("module."): value for name, value in held.items() if isinstance(value, Tensor)}
    return {name: value.float() if value.is_floating_point() else value for name, value in tensors.items()}


def _is_archive(file: Path) -> bool:
    """Whether a file is a TorchScript archive, which has a member for its constants."""
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _archived(file: Path) -> dict[str, Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the format, which OpenAI's files have
        weights: dict[str, Tensor] = torch.jit.load(str(file), map_location="cpu").state_dict()
    return weights


def _converted(file: Path, convert: Any, weights: dict[str, Tensor], **options: Any) -> Any:
    try:
        return convert(weights, **options)
    except (ValueError, KeyError) as error:
        raise ModelFolderError(f"{file}: {error}") from error


def _check_size(file: Path, tokenizer: str, pieces: int, rows: int) -> None:
    if pieces != rows:
        raise ModelFolderError(
            f"{file} was trained with {rows:,} tokens, and the tokenizer of {tokenizer} has {pieces:,}"
        )


def _clip_processor(config: Any, tokenizer: Any) -> ProcessorMixin:
    """CLIP's processor for the images of a tower's size."""
    side = config.vision_config.image_size
    images = CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
    tokenizer.model_max_length = config.text_config.max_position_embeddings
    made: Any = CLIPProcessor if config.model_type == "clip" else VisionTextDualEncoderProcessor
    processor: ProcessorMixin = made(images, tokenizer)
    return processor


def _write(model: PreTrainedModel, processor: ProcessorMixin, output: Path) -> None:
    prepare_saving(output)
    if (output / "config.json").is_file():
        raise FileExistsError(f"{output} holds a model already: choose another folder")
    with atomic_directory(output) as scratch:
        model.save_pretrained(scratch)
        processor.save_pretrained(scratch)
    languages = [getattr(model.config, "native_language", "en"), *getattr(model.config, "languages", [])]
    parameters = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    typer.echo(
        f"{output}: {type(model).__name__} of {parameters:,.1f} million parameters, reads {', '.join(languages)}"
    )

"""Files of weights that the code of others wrote: safetensors, PyTorch's own, and OpenAI's TorchScript archives."""

import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from ..configuration.errors import ModelFolderError, first_line

_KEYS = ("state_dict", "model_state_dict", "model")  # under which training code keeps the weights


def read_weights(file: Path) -> dict[str, Tensor]:
    """Returns the state dict of a checkpoint, in float32.

    Args:
        file: a safetensors file; a dictionary that `torch.save` wrote, also with the weights one level below
            (`state_dict`), of which weights alone are unpickled; or one of OpenAI's TorchScript archives, which hold
            code.

    Raises:
        ModelFolderError: for a file that holds no weights.
    """
    try:
        held: Any = _held(file)
    except Exception as error:  # unpickling other bytes can raise anything
        raise ModelFolderError(f"{file} is no checkpoint of weights alone: {first_line(error)}") from error
    for key in _KEYS:
        if isinstance(held, dict) and isinstance(held.get(key), dict):
            held = held[key]
    if not isinstance(held, dict) or not any(isinstance(value, Tensor) for value in held.values()):
        raise ModelFolderError(f"{file} holds no weights by their names")
    tensors = {name.removeprefix("module."): value for name, value in held.items() if isinstance(value, Tensor)}
    return {name: value.float() if value.is_floating_point() else value for name, value in tensors.items()}


def _held(file: Path) -> Any:
    if file.suffix == ".safetensors":
        return load_file(file)
    return _archived(file) if _is_archive(file) else torch.load(file, map_location="cpu", weights_only=True)


def _is_archive(file: Path) -> bool:
    """Returns whether a file is a TorchScript archive, which has a member for its constants."""
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _archived(file: Path) -> dict[str, Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the format, which OpenAI's files have
        weights: dict[str, Tensor] = torch.jit.load(str(file), map_location="cpu").state_dict()
    return weights

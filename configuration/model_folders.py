"""Checks of the files in a model's folder: each problem is one sentence. Nothing in the folder is executed."""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from .errors import ModelFolderError

_LFS_POINTER = b"version https://git-lfs"
_INDEX = "*.safetensors.index.json"
_SETTINGS = ("config.json", "processor_config.json", "tokenizer_config.json", "adapter_config.json")
_NAMED = 5  # largest number of weights that a message names


def damaged_files(folder: Path) -> list[str]:
    """Returns the problems of the settings, the tokenizer and the weights in a folder, one sentence for each file."""
    problems = [problem for path in sorted(folder.glob("*.json")) if (problem := _damaged_json(path))]
    problems += [problem for path in sorted(folder.glob("*.safetensors")) if (problem := _damaged_weights(path))]
    return problems + misplaced_shards(folder)


def misplaced_shards(folder: Path) -> list[str]:
    """Returns one sentence for each file outside of the folder that an index of weights names."""
    problems = []
    for index in sorted(folder.glob(_INDEX)):
        try:
            names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError):
            problems.append(f"{index} is not an index of weights: it has no weight_map from names to files")
            continue
        strangers = sorted(str(name) for name in names if not isinstance(name, str) or Path(name).name != name)
        problems += [f"{index} names weights in {name!r}, which is not a file of this folder" for name in strangers]
    return problems


def non_finite_weights(folder: Path) -> list[str]:
    """Returns one sentence for each file of weights that holds NaN or infinite values.

    Raises:
        ModelFolderError: if a file cannot be read.
    """
    problems = []
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                bad = [name for name in file.keys() if not is_finite(file.get_tensor(name))]  # noqa: SIM118
        except SafetensorError as error:
            raise ModelFolderError(_damaged_weights(path) or f"{path}: {error}") from error
        if bad:
            problems.append(f"{path} has numbers that are NaN or infinite in {named(bad)}")
    return problems


def is_finite(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor holds neither NaN nor infinity; integers and booleans never do."""
    if not tensor.is_floating_point():
        return True
    wide = tensor.float() if tensor.element_size() == 1 else tensor  # PyTorch has no isfinite for 8-bit numbers
    # If the sum is finite, all numbers are, and it is fast to compute; a sum that is not finite may have overflowed.
    return bool(wide.sum().isfinite()) or bool(wide.isfinite().all())


def is_of_a_file(error: BaseException) -> bool:
    """Returns whether an error may come from what is in a file: any `Exception`, and a panic of tokenizers' code in
    Rust, which is none."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def named(names: list[str]) -> str:
    """Joins names for a message; of many names, it gives the first few and the number of the others."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _damaged_json(path: Path) -> str | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        return f"{path} {_mistaken(path) or f'is truncated or damaged ({error})'}"
    if path.name == "tokenizer.json":
        try:
            Tokenizer.from_file(str(path))
        except BaseException as error:  # tokenizers raises the bare `Exception` for any error
            if not is_of_a_file(error):
                raise
            return f"{path} is not a tokenizer ({error})"
    elif path.name in _SETTINGS and not isinstance(content, dict):
        return f"{path} holds no settings: they must be a JSON object"
    return None


def _damaged_weights(path: Path) -> str | None:
    try:
        with safe_open(path, framework="pt") as file:
            file.keys()
    except (SafetensorError, OSError) as error:
        return f"{path} {_mistaken(path) or f'is truncated or damaged ({error})'}; get it again"
    return None


def _mistaken(path: Path) -> str | None:
    """Returns what a file contains if that is known not to be what its name says, else `None`."""
    with path.open("rb") as file:
        start = file.read(512).lstrip()
    if not start:
        return "is empty"
    if start.startswith(_LFS_POINTER):
        return "is a pointer of git-lfs in the place of the file (`git lfs pull` fetches it)"
    if start[:1] == b"<":
        return "is a web page in the place of the file"
    return None

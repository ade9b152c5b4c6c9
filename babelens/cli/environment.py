"""What a bug report needs, for `babelens info --environment`.

It works where babelens does not: a package that is missing or cannot be imported is reported as such.
"""

import json
import os
import platform
from collections.abc import Callable
from getpass import getuser
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import typer

from .. import __version__
from ..configuration.machine import usable_cores
from .errors import packages_of_extras

_PACKAGES = ("torch", "transformers", "peft", "datasets", "accelerate", "huggingface_hub", "tokenizers", "numpy")
# What Linux calls the instructions for products in bfloat16: those of Intel and AMD, and those of Arm.
_BF16_INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16")


def show_environment(*, as_json: bool) -> None:
    """Prints the environment as lines `name: value`, or as JSON."""
    facts = environment_facts()
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            typer.echo(f"{name}:")
            for key, each in value.items():
                typer.echo(f"  {key}: {each}")
        else:
            typer.echo(f"{name}: {value}")


def environment_facts() -> dict[str, Any]:
    """Versions, hardware and settings, as JSON can hold them, without the name of the user."""
    return {
        "babelens": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": platform.platform(),
        "processor": _processor(),
        "packages": {package: _version(package) for package in _PACKAGES},
        "extras": _extras(),
        "torch": _reported(_torch_facts),
        "hugging_face": _reported(_hub_facts),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _reported(facts: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The facts, or the reason why they cannot be had."""
    try:
        return facts()
    except (ImportError, OSError) as error:  # a damaged installation of torch raises either
        return {"error": _anonymous(f"{type(error).__name__}: {error}")}


def _processor() -> dict[str, Any]:
    """The model of the processor, its cores, and its instructions for products in bfloat16."""
    facts = _linux_processor()
    flags = set(facts.get("flags", facts.get("Features", "")).split())
    return {
        "model": facts.get("model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "cores_allowed": usable_cores(),
        "bf16_instructions": [name for name in _BF16_INSTRUCTIONS if name in flags],
    }


def _linux_processor() -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo; nothing on another system."""
    try:
        first = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _extras() -> dict[str, str]:
    """Each extra of babelens, with the versions of its packages."""
    return {
        extra: ", ".join(f"{package} {_version(package)}" for package in packages)
        for extra, packages in packages_of_extras().items()
    }


def _torch_facts() -> dict[str, Any]:
    import torch

    cuda = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return {
        "build": torch.__version__,
        "cuda": torch.version.cuda,
        "rocm": torch.version.hip,
        "accelerator": str(accelerator) if accelerator else None,
        "devices": cuda,
        "accelerator_bf16": torch.cuda.is_bf16_supported(including_emulation=False) if cuda else None,
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
    }


def _hub_facts() -> dict[str, Any]:
    """Where the Hub's files are kept, and the settings that change how they are fetched; never a token."""
    from huggingface_hub import constants

    return {
        "hub_cache": _anonymous(str(constants.HF_HUB_CACHE)),
        "datasets_cache": _anonymous(os.environ.get("HF_DATASETS_CACHE", f"{constants.HF_HOME}/datasets")),
        "offline": constants.HF_HUB_OFFLINE,
        "endpoint": urlsplit(constants.ENDPOINT).hostname,
    }


def _anonymous(text: str) -> str:
    """The text with `~` in the place of the home folder, and `USER` in the place of the user's name in a path."""
    home = str(Path.home())
    if home not in ("/", ""):
        text = text.replace(home, "~")
    try:
        user = getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return text
    return "/".join("USER" if part == user else part for part in text.split("/"))

"""`babelens info`: what a model consists of, and the environment that babelens runs in."""

import os
import platform
from collections.abc import Callable
from getpass import getuser
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from .. import __version__
from ..utils.errors import ModelFolderError
from .console import plain_console, print_json
from .errors import packages_of_extras
from .options import AsJson, TrustRemoteCode
from .starting import begin_work

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


def info(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A preset such as `mural-base`, or a model: a folder, or a name on the Hugging Face Hub.",
        ),
    ] = None,
    environment: Annotated[
        bool,
        typer.Option(
            "--environment", help="Show the versions, the hardware and the settings that a bug report needs."
        ),
    ] = False,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Show the number of parameters of a model and of its parts; for presets, beside the numbers of the paper.

    Only the configuration is read. No weights are downloaded, and no memory is taken for them, however large the
    model.

    `babelens info --environment` takes no model. Paste what it prints into a bug report: it names no user, and no
    folder outside of the home folder but those that were set for the Hugging Face cache.
    """
    if environment == (model is not None):
        raise typer.BadParameter("give either a model or --environment", param_hint="MODEL")
    if environment:
        _show_environment(as_json)
    elif model:
        begin_work()
        _show_parameters(model, trust_remote_code, as_json)


def _show_parameters(model: str, trust_remote_code: bool, as_json: bool) -> None:
    from rich.table import Table

    facts = parameter_facts(model, trust_remote_code=trust_remote_code)
    if as_json:
        print_json(facts)
        return
    paper = facts["paper"]
    source = facts["source"] and f"paper: {facts['source']}"
    table = Table(title=f"{model} ({facts['model_type']})", caption=source)
    table.add_column("part")
    for name in ("parameters", "paper", "difference") if paper else ("parameters",):
        table.add_column(name, justify="right")
    for part, count in facts["parameters"].items():
        comparison = (f"{paper[part] / 1e6:,.0f} M", f"{count / paper[part] - 1:+.1%}") if part in paper else ()
        table.add_row(part, f"{count:,}", *comparison, end_section=part == "total")
    plain_console().print(table)


def parameter_facts(model: str, *, trust_remote_code: bool = False) -> dict[str, Any]:
    """Parameter counts of a preset, a folder or a Hub model; `paper` and `source` are empty without a paper's numbers.

    Raises:
        typer.BadParameter: when `model` is none of these.
    """
    import torch

    from ..configuration.presets import list_presets, load_preset, preset_facts

    if model in list_presets():
        config: PreTrainedConfig = load_preset(model)
        facts = preset_facts(model)
    else:
        config, facts = _load_config(model, trust_remote_code), {}
    with torch.device("meta"):
        parts = _parts(_build(config, trust_remote_code))
    return {
        "model": model,
        "model_type": config.model_type,
        "parameters": {"total": sum(parts.values())} | parts,
        "paper": {part: round(millions * 1e6) for part, millions in facts.get("paper", {}).items()},
        "source": facts.get("source", ""),
    }


def _load_config(model: str, trust_remote_code: bool) -> "PreTrainedConfig":
    from ..configuration.presets import list_presets
    from ..utils.pretrained import load_config

    try:
        return load_config(model, trust_remote_code=trust_remote_code)
    except ModelFolderError as error:
        known = "" if Path(model).exists() else f"{model!r} is no preset ({', '.join(list_presets())}); "
        raise typer.BadParameter(f"{known}{error}", param_hint="MODEL") from error


def _build(config: "PreTrainedConfig", trust_remote_code: bool) -> "PreTrainedModel":
    """The model that a configuration was saved with, where a method has several."""
    from transformers import AutoModel

    from ..registry import METHODS

    method = METHODS.get(config.model_type)
    for model_class in method.models if method else ():
        if model_class.__name__ in (config.architectures or ()):
            return model_class(config)
    return AutoModel.from_config(config, trust_remote_code=trust_remote_code)


def _parts(model: "PreTrainedModel") -> dict[str, int]:
    """Parameters by part; of a model that does not name its parts, by its direct modules."""
    if hasattr(model, "parameter_parts"):
        return model.parameter_parts()
    parts = {name: sum(p.numel() for p in module.parameters()) for name, module in model.named_children()}
    return parts | {"other": sum(p.numel() for p in model.parameters()) - sum(parts.values())}


# ---- What a bug report needs, for `babelens info --environment` ----
# It works where babelens does not: a package that is missing or cannot be imported is reported as such.


_PACKAGES = ("torch", "transformers", "peft", "datasets", "accelerate", "huggingface_hub", "tokenizers", "numpy")
# What Linux calls the instructions for products in bfloat16: those of Intel and AMD, and those of Arm.
_BF16_INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16")


def _show_environment(as_json: bool) -> None:
    facts = environment_facts()
    if as_json:
        print_json(facts)
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

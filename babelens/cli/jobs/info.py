"""The parameters of a model, for `babelens info`."""

import json
from pathlib import Path
from typing import Any

import torch
import typer
from rich.table import Table
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel

from ...configuration.errors import ModelFolderError
from ...configuration.presets import list_presets, load_preset, preset_facts
from ...configuration.pretrained import load_config
from ...registry import METHODS
from ..console import plain_console


def show_parameters(model: str, *, trust_remote_code: bool, as_json: bool) -> None:
    """Prints the number of parameters of a model and of its parts, beside the numbers of its paper."""
    facts = parameter_facts(model, trust_remote_code=trust_remote_code)
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
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


def _load_config(model: str, trust_remote_code: bool) -> PreTrainedConfig:
    try:
        return load_config(model, trust_remote_code=trust_remote_code)
    except ModelFolderError as error:
        known = "" if Path(model).exists() else f"{model!r} is no preset ({', '.join(list_presets())}); "
        raise typer.BadParameter(f"{known}{error}", param_hint="MODEL") from error


def _build(config: PreTrainedConfig, trust_remote_code: bool) -> PreTrainedModel:
    """The model that a configuration was saved with, where a method has several."""
    method = METHODS.get(config.model_type)
    for model_class in method.models if method else ():
        if model_class.__name__ in (config.architectures or ()):
            return model_class(config)
    return AutoModel.from_config(config, trust_remote_code=trust_remote_code)


def _parts(model: PreTrainedModel) -> dict[str, int]:
    """Parameters by part; of a model that does not name its parts, by its direct modules."""
    if hasattr(model, "parameter_parts"):
        return model.parameter_parts()
    parts = {name: sum(p.numel() for p in module.parameters()) for name, module in model.named_children()}
    return parts | {"other": sum(p.numel() for p in model.parameters()) - sum(parts.values())}

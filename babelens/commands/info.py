"""`babelens info`: what a model consists of, beside what its paper reports."""

import json
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel

from ..configuration.presets import list_presets, load_preset, preset_facts
from ..methods import METHODS


def info(
    model: Annotated[str, typer.Argument(help="A preset (`mural-base`), a model's folder, or its name on the Hub.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Show a model's parameters: their number in all and by part, for presets beside the numbers of the paper.

    Only the configuration is read: no weights are downloaded and no memory is taken, however large the model.
    """
    facts = parameter_facts(model)
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    paper = facts["paper"]
    table = Table(title=f"{model} ({facts['model_type']})", caption=facts["source"] and f"paper: {facts['source']}")
    table.add_column("part")
    for name in ("parameters", "paper", "difference") if paper else ("parameters",):
        table.add_column(name, justify="right")
    for part, number in facts["parameters"].items():
        comparison = (f"{paper[part] / 1e6:,.0f} M", f"{number / paper[part] - 1:+.1%}") if part in paper else ()
        table.add_row(part, f"{number:,}", *comparison, end_section=part == "total")
    Console().print(table)


def parameter_facts(model: str) -> dict[str, Any]:
    """Parameter counts of a preset, a folder or a Hub model; `paper` and `source` are empty without a paper's numbers.

    Raises:
        typer.BadParameter: when `model` is none of these.
    """
    if model in list_presets():
        config: PreTrainedConfig = load_preset(model)
        facts = preset_facts(model)
    else:
        config, facts = _load_config(model), {}
    with torch.device("meta"):
        parts = _parts(_build(config))
    return {
        "model": model,
        "model_type": config.model_type,
        "parameters": {"total": sum(parts.values())} | parts,
        "paper": {part: round(millions * 1e6) for part, millions in facts.get("paper", {}).items()},
        "source": facts.get("source", ""),
    }


def _load_config(model: str) -> PreTrainedConfig:
    try:
        return AutoConfig.from_pretrained(model)
    except OSError as error:
        known = ", ".join(list_presets())
        message = f"{model!r} is no preset ({known}), no model's folder, and could not be had from the Hub"
        raise typer.BadParameter(message, param_hint="MODEL") from error


def _build(config: PreTrainedConfig) -> PreTrainedModel:
    """The model that a configuration was saved with, where a method has several."""
    method = METHODS.get(config.model_type)
    for model_class in method.models if method else ():
        if model_class.__name__ in (config.architectures or ()):
            return model_class(config)
    return AutoModel.from_config(config)


def _parts(model: PreTrainedModel) -> dict[str, int]:
    """Parameters by part; of a model that does not know its parts, by its direct modules."""
    if hasattr(model, "parameter_parts"):
        return model.parameter_parts()
    parts = {name: sum(p.numel() for p in module.parameters()) for name, module in model.named_children()}
    return parts | {"other": sum(p.numel() for p in model.parameters()) - sum(parts.values())}

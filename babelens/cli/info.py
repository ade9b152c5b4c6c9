"""`babelens info`: what a model consists of, and the environment that babelens runs in."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..configuration.errors import ModelFolderError
from .console import plain_console
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
        from .environment import show_environment

        show_environment(as_json=as_json)
    elif model:
        begin_work()

        show_parameters(model, trust_remote_code=trust_remote_code, as_json=as_json)


def show_parameters(model: str, *, trust_remote_code: bool, as_json: bool) -> None:
    """Prints the number of parameters of a model and of its parts, beside the numbers of its paper."""
    from rich.table import Table

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
    from ..configuration.pretrained import load_config

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

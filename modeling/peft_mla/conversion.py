"""The files of adapters; converts adapters and `MlaModel`s into each other.

save_adapter   a language of an `MlaModel` -> the folder of an adapter, which PEFT loads
to_mla_model   a model with PEFT adapters -> an `MlaModel`

Adapters and assembled models have the same weights, under two sets of names.
"""

import hashlib
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from peft.utils import SAFETENSORS_WEIGHTS_NAME
from safetensors.torch import save_file
from torch import Tensor

from ...configuration.configuration_mla import MlaConfig
from ...utils.errors import InputError
from ...utils.files import apply_umask
from ...utils.identity import add_weights
from ..acquirer import take_precision
from ..modeling_mla import MlaModel
from .config import MlaAdapterConfig

_PREFIX = "base_model.model."  # begins the names in an adapter's file
# Options that adapters and `MlaModel` have in common, and that all languages of a model share.
SHARED_OPTIONS = ("native_language", "acquirer", "acquirer_size", "vocab_size", "embedding_size", "sep_token_id")
_EMBEDDING = ("table.weight", "projection.weight", "projection.bias")


# ---- The shared embedding ----


def embedding_digest(weights: dict[str, Tensor]) -> str:
    """Computes SHA-256 of the weights of a non-native embedding, as float32 numbers, in hexadecimal digits."""
    digest = hashlib.sha256()
    add_weights(digest, {name: weights[name].to(torch.float32) for name in _EMBEDDING})
    return digest.hexdigest()


def shared_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the weights of the shared embedding among those of an adapter, by their own names."""
    part = ".shared_embedding."
    return {name.split(part)[1]: value for name, value in weights.items() if part in name}


def _save(weights: dict[str, Tensor], file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    on_cpu = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
    save_file(on_cpu, file, metadata={"format": "pt"})
    apply_umask(file)


# ---- Adapters ----


def save_adapter(
    model: MlaModel, language: str, folder: str | Path, *, base_model: str | None = None, **options: Any
) -> None:
    """Writes a language, with the shared embedding, in PEFT's format: `adapter_config.json` and
    `adapter_model.safetensors`.

    Args:
        model: a model that has acquired the language.
        language: the language.
        folder: the adapter's folder, which is created if needed.
        base_model: the folder or Hub id of the model that the adapter is for; by default that of the native model.
        options: other keys of `MlaAdapterConfig`, such as `normalization`.

    Examples:
        >>> save_adapter(model, "de", "clip-de", base_model="openai/clip-vit-base-patch32")
    """
    mine = f".mla_acquirers.{language}."
    weights = {
        _PREFIX + name.replace(".mla_embedding.", ".shared_embedding.").replace(mine, ".mla_acquirers."): value
        for name, value in model.native_model.state_dict().items()
        if mine in name or ".mla_embedding." in name
    }
    parts = model.text_parts
    config = MlaAdapterConfig(
        language=language,
        embedding_digest=embedding_digest(model.embedding.non_native.state_dict()),
        train_embedding=model.config.train_embedding,
        text_width=parts.width,
        text_layers=len(model.blocks),
        target_modules=parts.target_modules,
        base_model_name_or_path=base_model or model.config.base_config.name_or_path or None,
        inference_mode=True,
        **{name: getattr(model.config, name) for name in SHARED_OPTIONS},
        **options,
    )
    _save(weights, Path(folder, SAFETENSORS_WEIGHTS_NAME))
    config.save_pretrained(str(folder))


def to_mla_model(model: Any, *, share_weights: bool = False) -> MlaModel:
    """Makes an `MlaModel` with the languages of a model's MLA adapters, in their order.

    Args:
        model: the result of `get_peft_model`, or a dual encoder of transformers with adapters (`add_adapter`).
        share_weights: whether both models have the same weights, so that training one trains the other.
    """
    configs: dict[str, MlaAdapterConfig] = model.peft_config
    options = [{name: getattr(config, name) for name in SHARED_OPTIONS} for config in configs.values()]
    if any(each != options[0] for each in options):
        raise InputError(f"the adapters differ in options that the languages of one model share: {options}")
    native: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    languages = [config.language for config in configs.values()]
    trains = next(iter(configs.values())).train_embedding
    config = MlaConfig(base_config=native.config, languages=languages, train_embedding=trains, **options[0])
    assembled = MlaModel(config)
    weights: dict[str, Tensor] = {}
    for name, value in native.state_dict(keep_vars=share_weights).items():
        for adapter, own in configs.items():
            name = name.replace(f".mla_acquirers.{adapter}.", f".mla_acquirers.{own.language}.")
        weights[name.replace(".shared_embedding.", ".mla_embedding.")] = value
    take_precision(assembled.native_model, weights)
    assembled.native_model.load_state_dict(weights, assign=share_weights)
    return assembled.train(model.training)

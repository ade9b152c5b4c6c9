"""Converts PEFT adapters and assembled models into each other: the same weights under two sets of names, without loss.

save_adapter      one language of an `MlaModel` -> the folder of an adapter
load_adapter      the folder of an adapter -> one more language of an `MlaModel`
to_mla_model      a model with PEFT adapters -> an `MlaModel`
to_peft_model     an `MlaModel` -> a model with PEFT adapters
"""

from pathlib import Path

import torch
from peft import PeftModel, get_peft_model
from peft.utils import SAFETENSORS_WEIGHTS_NAME, load_peft_weights
from safetensors.torch import save_file
from torch import Tensor

from ...configuration.configuration_mla import MlaConfig
from ...configuration.text_towers import text_tower
from ...utils.errors import ModelFolderError, ModelMismatchError, named
from ...utils.files import apply_umask
from ...utils.pretrained import is_finite
from ..acquirer import Acquirer, take_precision
from ..modeling_mla import MlaModel
from ..modeling_mla_base import register_native
from .config import PREFIX, MlaAdapterConfig
from .embedding import embedding_digest, load_embedding

# Options that adapters and `MlaModel` have in common, and that all languages of a model share.
SHARED_OPTIONS = (
    *("native_language", "acquirer", "acquirer_size", "vocab_size", "embedding_size", "sep_token_id"),
    "text_tower",
)


def adapter_config(
    model: MlaModel, language: str, *, embedding: str | None = None, base_model: str | None = None
) -> MlaAdapterConfig:
    """Returns the configuration of the adapter of a language.

    Args:
        model: a model that has acquired the language.
        language: the language.
        embedding: where the shared embedding is stored; by default, it is saved with the adapter.
        base_model: folder or Hub id of the model that the adapter is for.
    """
    base = model.config.base_config
    return MlaAdapterConfig(
        language=language,
        embedding=embedding,
        embedding_digest=embedding_digest(model.embedding.mla_embedding.state_dict()),
        train_embedding=model.config.train_embedding,
        text_width=model.text_parts.width,
        text_layers=len(model.blocks),
        target_modules=text_tower(base, model.config.text_tower).target_modules,
        base_model_name_or_path=base_model or base.name_or_path or None,
        inference_mode=True,
        **{name: getattr(model.config, name) for name in SHARED_OPTIONS},
    )


def save_adapter(
    model: MlaModel,
    language: str,
    folder: str | Path,
    *,
    embedding: str | None = None,
    base_model: str | None = None,
) -> None:
    """Writes a language in PEFT's format: `adapter_config.json` and `adapter_model.safetensors`.

    Args:
        model, language, embedding, base_model: as in `adapter_config`; with `embedding`, the file holds the acquirers
            alone.
        folder: where to write it; it is created if needed.

    Examples:
        >>> save_adapter(model, "de", "clip-de", base_model="openai/clip-vit-base-patch32")
    """
    config = adapter_config(model, language, embedding=embedding, base_model=base_model)
    weights = {
        PREFIX + name.replace(f".mla_acquirers.{language}.", ".mla_acquirers."): value
        for name, value in model.native_model.state_dict().items()
        if f".mla_acquirers.{language}." in name
    }
    if embedding is None:
        weights |= {
            PREFIX + _in_peft(name): v for name, v in model.native_model.state_dict().items() if _is_shared(name)
        }
    Path(folder).mkdir(parents=True, exist_ok=True)
    plain = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
    save_file(plain, Path(folder) / SAFETENSORS_WEIGHTS_NAME, metadata={"format": "pt"})
    apply_umask(Path(folder) / SAFETENSORS_WEIGHTS_NAME)
    config.save_pretrained(str(folder))


def load_adapter(model: MlaModel, source: str | Path) -> str:
    """Adds the language of an adapter to a model.

    A model without languages takes the shared embedding that comes with the adapter.

    Args:
        model: the model; it is not changed if an error is raised.
        source: the adapter's folder, or its repository on the Hub.

    Returns:
        The tag of the language.

    Raises:
        ModelMismatchError: if the adapter was made for another model or another shared embedding.
        ModelFolderError: if a file is missing, truncated or incomplete.
        ValueError: if the model already has the language.
    """
    config = MlaAdapterConfig.from_pretrained(str(source))
    if Path(source).is_dir() and not (Path(source) / SAFETENSORS_WEIGHTS_NAME).is_file():
        raise ModelFolderError(f"{source} has no {SAFETENSORS_WEIGHTS_NAME}; a pickle is not read")
    weights = {
        name.removeprefix(PREFIX): value for name, value in load_peft_weights(str(source), device="cpu").items()
    }
    shared = {name.split(".shared_embedding.")[1]: v for name, v in weights.items() if ".shared_embedding." in name}
    if not shared and config.embedding is not None and not model.config.languages:
        shared = load_embedding(config.embedding).weights
    _check_fit(config, model)
    own = {name: value for name, value in weights.items() if ".mla_acquirers." in name}
    _check_weights(own, _acquirer_shapes(model), f"the acquirers of {source}")
    if shared and not model.config.languages:
        table = {name: value.shape for name, value in model.embedding.mla_embedding.state_dict().items()}
        _check_weights(shared, table, f"the shared embedding of {source}")
    model.add_language(config.language)
    if shared and len(model.config.languages) == 1:
        model.embedding.mla_embedding.load_state_dict(shared)
    model.native_model.load_state_dict(
        {name.replace(".mla_acquirers.", f".mla_acquirers.{config.language}."): value for name, value in own.items()},
        strict=False,
    )
    return config.language


def _acquirer_shapes(model: MlaModel) -> dict[str, torch.Size]:
    """Returns the shapes of a language's acquirers in this model, by their names in an adapter."""
    with torch.device("meta"):
        config = model.config
        acquirer = Acquirer(model.text_parts.width, config.acquirer_size, config.acquirer)
    names = {module: name for name, module in model.native_model.named_modules()}
    return {
        f"{names[block]}.mla_acquirers.{name}": value.shape
        for block in model.blocks
        for name, value in acquirer.state_dict().items()
    }


def _check_weights(found: dict[str, Tensor], needed: dict[str, torch.Size], what: str) -> None:
    """Checks weights against the names and shapes that are needed.

    Raises:
        ModelFolderError: if weights are missing, have other names or shapes, or are not finite.
    """
    if found.keys() != needed.keys():
        missing, strange = sorted(needed.keys() - found.keys()), sorted(found.keys() - needed.keys())
        wrong = [f"lack {named(missing)}"] * bool(missing) + [f"have {named(strange)}, of no use"] * bool(strange)
        raise ModelFolderError(f"{what} {' and '.join(wrong)}")
    for name, value in found.items():
        if value.shape != needed[name]:
            raise ModelFolderError(f"{what}: {name} has {list(value.shape)}, and should have {list(needed[name])}")
        if not is_finite(value):
            raise ModelFolderError(f"{what}: {name} has numbers that are NaN or infinite")


def _check_fit(config: MlaAdapterConfig, model: MlaModel) -> None:
    own = adapter_config(model, config.language)
    for name in ("text_width", "text_layers", "target_modules", *SHARED_OPTIONS):
        if getattr(config, name) != getattr(own, name):
            raise ModelMismatchError(
                f"the {config.language!r} adapter was made for another model: it has {name}={getattr(config, name)!r},"
                f" and this model {getattr(own, name)!r}"
            )
    if model.config.languages and config.embedding_digest != own.embedding_digest:
        raise ModelMismatchError(
            f"the {config.language!r} adapter needs another shared embedding than this model's "
            f"{', '.join(model.config.languages)}, and a model has only one"
        )


def to_mla_model(model: PeftModel) -> MlaModel:
    """Makes an `MlaModel` with the languages of a model's MLA adapters, in their order.

    Raises:
        ModelMismatchError: if the adapters differ in more than their language.
    """
    configs: dict[str, MlaAdapterConfig] = model.peft_config
    first = next(iter(configs.values()))
    for config in configs.values():
        for name in SHARED_OPTIONS:
            if getattr(config, name) != getattr(first, name):
                raise ModelMismatchError(f"the adapters differ in {name}, which the languages of one model share")
    native = model.get_base_model()
    register_native(native)
    assembled = MlaModel(
        MlaConfig(
            base_config=native.config,
            languages=[config.language for config in configs.values()],
            train_embedding=first.train_embedding,
            **{name: getattr(first, name) for name in SHARED_OPTIONS},
        )
    )
    weights = {}
    for name, value in native.state_dict().items():
        for adapter, config in configs.items():
            name = name.replace(f".mla_acquirers.{adapter}.", f".mla_acquirers.{config.language}.")
        weights[name.replace(".shared_embedding.", ".mla_embedding.")] = value
    take_precision(assembled.native_model, weights)
    assembled.native_model.load_state_dict(weights)
    return assembled.train(model.training)


def to_peft_model(model: MlaModel) -> PeftModel:
    """Makes a PEFT model of the native model, with an adapter for each language, named after it; the first is active.

    Raises:
        ValueError: if the model has acquired no language.
    """
    if not model.config.languages:
        raise ValueError("this model has acquired no language, and PEFT has no model without an adapter")
    configs = {language: adapter_config(model, language) for language in model.config.languages}
    first, *others = configs
    parts = get_peft_model(model.unload(), configs[first], adapter_name=first)
    weights: dict[str, Tensor] = {_in_peft(name): v for name, v in model.native_model.state_dict().items()}
    parts.get_base_model().load_state_dict(weights, strict=False)
    for language in others:
        parts.add_adapter(language, configs[language])
    parts.get_base_model().load_state_dict(weights)
    return parts.train(model.training)


def _is_shared(name: str) -> bool:
    return ".mla_embedding." in name


def _in_peft(name: str) -> str:
    return name.replace(".mla_embedding.", ".shared_embedding.")

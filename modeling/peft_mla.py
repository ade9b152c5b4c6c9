"""MLA as a PEFT method, registered on import: one adapter for each acquired language (Zhang et al. 2022, section 3.2).

    model = get_peft_model(clip, MlaAdapterConfig(language="de"), adapter_name="de")
    model.get_text_features(**tokens)                               # all rows in the active adapter's language
    model(**tokens, adapter_names=["de", "__base__", "fr", …])      # row by row; `__base__` is the plain model

`acquirer` defines what a layer computes; the layers here decide which rows of a batch are in which adapter's language.
They cannot be merged into the model. Adapters and `MlaModel`s have the same weights, under two sets of names
(`save_adapter`, `to_mla_model`).
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import torch
from peft import PeftModel
from peft.config import PeftConfig
from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING
from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer
from peft.utils import SAFETENSORS_WEIGHTS_NAME, PeftType, register_peft_method
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ..configuration.configuration_mla import MlaConfig
from ..utils.errors import InputError, ModelFolderError
from ..utils.files import apply_umask
from ..utils.identity import add_weights
from ..utils.languages import normalize_language
from .acquirer import (
    AcquiredBlock,
    AcquiredEmbedding,
    Acquirer,
    BatchLanguages,
    NonNativeEmbedding,
    RowsByLanguage,
    TowerParts,
    eval_frozen,
    languages_of_rows,
    take_precision,
)
from .modeling_mla import MlaModel

BASE = "__base__"  # PEFT's name for no adapter, in `adapter_names`
_PREFIX = "base_model.model."  # begins the names in an adapter's file
_SHARED = ".shared_embedding."  # part of the names of the embedding that all adapters of a model share
# Options that adapters and `MlaModel` have in common, and that all languages of a model share.
SHARED_OPTIONS = ("native_language", "acquirer", "acquirer_size", "vocab_size", "embedding_size", "sep_token_id")

# ---- Configuration ----


def peft_type_member(name: str) -> PeftType:
    """Returns the member of `PeftType` with this name, added if it is new, as `EnumType` adds it when it creates the
    class: PEFT looks methods up by these members, and offers no other way to register one from outside."""
    if name not in PeftType.__members__:
        member = str.__new__(PeftType, name)
        member._name_, member._value_ = name, name
        member.__objclass__, member._sort_order_ = PeftType, len(PeftType)
        PeftType._member_names_.append(name)
        PeftType._member_map_[name] = PeftType._value2member_map_[name] = member
        type.__setattr__(PeftType, name, member)
    return PeftType[name]


MLA = peft_type_member("MLA")


@dataclass
class MlaAdapterConfig(PeftConfig):
    """Configuration of an adapter that acquires one language, by default the paper's (sections 3.2 and 4.1), with
    M-BERT's vocabulary; options of `MlaConfig` are as there, and the last three are filled in from the model.
    `embedding_digest` is the SHA-256 of the embedding that adapters of one model share, and each is saved with.
    `normalization` is the version of `text_normalization` by which texts are read, 0 for unchanged texts."""

    language: str = ""
    native_language: str = "en"
    acquirer: Literal["mlp", "linear"] = "mlp"
    acquirer_size: int = 256
    vocab_size: int = 119_547
    embedding_size: int = 768
    sep_token_id: int = 102
    train_embedding: bool = True
    embedding_digest: str | None = None
    normalization: int = 0
    text_width: int | None = None
    text_layers: int | None = None
    target_modules: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = MLA
        if not self.language:
            raise ValueError("an adapter acquires one language: name it, as in MlaAdapterConfig(language='de')")
        self.language = normalize_language(self.language)
        self.native_language = normalize_language(self.native_language)
        if self.acquirer not in ("mlp", "linear"):
            raise ValueError(f"acquirer={self.acquirer!r} must be 'mlp' or 'linear'")
        if not 0 <= self.sep_token_id < self.vocab_size:
            raise ValueError(f"sep_token_id={self.sep_token_id} is not in a vocabulary of {self.vocab_size}")

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str, subfolder: str | None = None, **kwargs: Any
    ) -> "MlaAdapterConfig":
        """Loads a configuration, and checks its weights: PEFT and transformers only warn about missing ones."""
        config = super().from_pretrained(pretrained_model_name_or_path, subfolder=subfolder, **kwargs)
        if config.peft_type != MLA:  # PEFT then returns the configuration of the other method
            raise InputError(f"{pretrained_model_name_or_path} holds an adapter of {config.peft_type.value}")
        path = Path(pretrained_model_name_or_path, subfolder or "", SAFETENSORS_WEIGHTS_NAME)
        if path.is_file():
            try:
                with safe_open(path, framework="pt") as file:
                    names = list(file.keys())
            except SafetensorError as error:
                raise ModelFolderError(f"{path} is truncated or damaged ({error}); get it again") from error
            last, each = (".up.weight", 4) if config.acquirer == "mlp" else (".map.weight", 2)
            blocks, shared = (sum(part in name for name in names) for part in (last, _SHARED))
            if shared != 3 or len(names) != 3 + each * blocks or blocks != (config.text_layers or blocks):
                raise ModelFolderError(f"{path} has no shared embedding, or not the acquirers of each block")
        return config


# ---- Layers ----


class MlaLayer(BaseTunerLayer):
    """Base class of the wrapped embedding and the wrapped blocks of a text tower."""

    def rows_of(self, count: int) -> BatchLanguages | None:
        """Returns the adapters set for a batch, else the active one for all rows; `None` means the plain model."""
        if self.disable_adapters:
            return None
        if (rows := super().rows_of(count)) is not None:  # of the wrapped layer
            return rows
        active = [name for name in self.active_adapters if name in self._all_available_adapter_names()]
        return RowsByLanguage.all_in(active[0], count) if active else None

    def set_adapter(self, adapter_names: str | list[str], inference_mode: bool = False) -> None:
        if not isinstance(adapter_names, str) and len(adapter_names) > 1:
            raise ValueError(
                f"a text is in one language, not {', '.join(adapter_names)}: batches that mix languages take "
                "`adapter_names`, one for each row"
            )
        super().set_adapter(adapter_names, inference_mode=inference_mode)

    def _get_base_layer_device_and_dtype(self, base_layer: nn.Module) -> tuple[torch.device, torch.dtype]:
        parameter = next(base_layer.parameters())
        return parameter.device, parameter.dtype


class MlaBlock(MlaLayer, AcquiredBlock):
    """A block of the text tower, followed by the acquirer of each row's adapter."""

    adapter_layer_names = ("mla_acquirers",)

    def __init__(self, base_layer: nn.Module, adapter_name: str, config: MlaAdapterConfig) -> None:
        super().__init__(base_layer)
        self._active_adapter = [adapter_name]
        self.update_layer(adapter_name, config)

    def update_layer(self, adapter_name: str, config: MlaAdapterConfig) -> None:
        assert config.text_width is not None  # filled in from the model, before anything is injected
        self.mla_acquirers[adapter_name] = Acquirer(config.text_width, config.acquirer_size, config.acquirer)
        self._move_adapter_to_device_of_base_layer(adapter_name)
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)


class MlaEmbedding(MlaLayer, AcquiredEmbedding):
    """The text tower's embedding, with the vocabulary that all adapters share. It stays when adapters are deleted, and
    is trained while an adapter with `train_embedding` is active."""

    other_param_names = ("trains_embedding",)
    # When transformers loads an adapter, it adds the adapter's name to every `mla_…` in the names of weights.
    non_native_name = "shared_embedding"
    shared_embedding: NonNativeEmbedding

    def __init__(self, parts: TowerParts, adapter_name: str, config: MlaAdapterConfig) -> None:
        shared = NonNativeEmbedding(config.vocab_size, config.embedding_size, parts.embedding_width)
        super().__init__(parts.embeddings, shared, config.sep_token_id, parts.end_token_id)
        self.trains_embedding = {adapter_name: config.train_embedding}
        self._watching = self.watch(parts.tower)
        self._active_adapter = [adapter_name]
        self.update_layer(adapter_name, config)

    def update_layer(self, adapter_name: str, config: MlaAdapterConfig) -> None:
        """Adds another adapter, with a new embedding if all earlier ones were deleted."""
        if not self.trains_embedding:
            width = self.shared_embedding.projection.out_features
            self.shared_embedding = NonNativeEmbedding(config.vocab_size, config.embedding_size, width)
            self.sep_token_id = config.sep_token_id
        self.trains_embedding[adapter_name] = config.train_embedding
        self._move_adapter_to_device_of_base_layer(adapter_name)
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)

    def set_adapter(self, adapter_names: str | list[str], inference_mode: bool = False) -> None:
        super().set_adapter(adapter_names, inference_mode=inference_mode)
        trained = any(self.trains_embedding.get(name, False) for name in self.active_adapters)
        self.shared_embedding.requires_grad_(trained and not inference_mode)

    def set_requires_grad(self, adapter_names: str | Sequence[str], requires_grad: bool = True) -> None:
        names = [adapter_names] if isinstance(adapter_names, str) else adapter_names
        if any(self.trains_embedding.get(name, False) for name in names):
            self.shared_embedding.requires_grad_(requires_grad)

    def enable_adapters(self, enabled: bool) -> None:
        super().enable_adapters(enabled)
        if not enabled:
            self.shared_embedding.requires_grad_(False)

    def _move_adapter_to_device_of_base_layer(self, adapter_name: str, device: torch.device | None = None) -> None:
        if not self.shared_embedding.table.weight.is_meta:
            self.shared_embedding.to(device or self._get_base_layer_device_and_dtype(self.base_layer)[0])

    def unload_and_optionally_merge_module(self, **kwargs: Any) -> nn.Module:
        """Removes the hook on the tower, and returns the tower's own embedding."""
        self._watching.remove()
        return self.base_layer


# ---- The tuner ----


class MlaAdapterModel(BaseTuner):
    """A dual encoder of transformers or babelens with MLA adapters in its text tower, which `get_peft_model` builds.
    The dual encoder stays frozen, without dropout and new batch statistics."""

    prefix = "mla_"
    tuner_layer_cls = MlaLayer

    def inject_adapter(
        self, model: nn.Module, adapter_name: str, *args: Any, state_dict: Any = None, **kwargs: Any
    ) -> None:
        # `state_dict` is not passed on: the configuration determines which modules are wrapped.
        try:
            super().inject_adapter(model, adapter_name, *args, **kwargs)
        except Exception:
            self.peft_config.pop(adapter_name, None)
            raise

    def _check_new_adapter_config(self, config: MlaAdapterConfig) -> None:
        super()._check_new_adapter_config(config)
        parts = self._parts()
        own = len(parts.blocks), parts.width, parts.target_modules
        made_for = config.text_layers or own[0], config.text_width or own[1], config.target_modules or own[2]
        if made_for != own:
            raise InputError(
                f"the {config.language!r} adapter was made for another model: the blocks, width and names of its "
                f"text tower are {made_for}, and this one's are {own}"
            )
        config.text_layers, config.text_width, config.target_modules = own
        languages = [other.language for other in self.peft_config.values()]  # including the new one
        if languages.count(config.language) > 1:
            raise InputError(f"this model has acquired {config.language!r} already; delete that adapter first")

    def _parts(self) -> TowerParts:
        return TowerParts(self.model, getattr(self.model, "config", None))

    def _prepare_model(self, config: MlaAdapterConfig, model: nn.Module) -> None:
        """Compares the shared embedding that an adapter needs with the model's, if it has one."""
        layers = (each for each in model.modules() if isinstance(each, MlaEmbedding) and each.trains_embedding)
        if (present := next(layers, None)) is None:
            return
        table, own = present.shared_embedding.table, embedding_digest(present.shared_embedding.state_dict())
        sizes = table.num_embeddings, table.embedding_dim, present.sep_token_id
        if sizes != (config.vocab_size, config.embedding_size, config.sep_token_id) or (
            config.embedding_digest not in (None, own)
        ):
            raise InputError(
                f"the {config.language!r} adapter needs another shared embedding than this model's languages, and a "
                "model has only one. Languages can be combined if they were acquired on one embedding with "
                "train_embedding=False"
            )

    def _create_and_replace(
        self,
        config: MlaAdapterConfig,
        adapter_name: str,
        target: nn.Module,
        target_name: str,
        parent: nn.Module,
        **kwargs: Any,
    ) -> None:
        if isinstance(target, MlaLayer):
            target.update_layer(adapter_name, config)
            return
        if isinstance(parent, nn.ModuleList):
            layer: MlaLayer = MlaBlock(target, adapter_name, config)
        else:
            layer = MlaEmbedding(self._parts(), adapter_name, config)
        self._replace_module(parent, target_name, layer, target)

    def _replace_module(self, parent: nn.Module, child_name: str, new_module: nn.Module, child: nn.Module) -> None:
        setattr(parent, child_name, new_module)

    def _check_merge_allowed(self) -> None:
        raise ValueError("MLA adapters cannot be merged into the model, because acquirers are separate layers")

    @contextmanager
    def _enable_peft_forward_hooks(
        self, *args: Any, adapter_names: Sequence[str] | None = None, **kwargs: Any
    ) -> Iterator[None]:
        if adapter_names is None:
            yield
            return
        if unknown := sorted(set(adapter_names) - {BASE, *self.peft_config}):
            raise ValueError(f"adapter_names has {unknown}; this model has {', '.join([BASE, *self.peft_config])}")
        rows = RowsByLanguage([None if name == BASE else name for name in adapter_names])
        with languages_of_rows(self.model, rows):
            yield

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        eval_frozen(self.model, training=mode)
        return self

    @classmethod
    def _get_adapter_state_dict(cls, *, config: MlaAdapterConfig, **kwargs: Any) -> dict[str, Tensor]:
        selected: dict[str, Tensor] = super()._get_adapter_state_dict(config=config, **kwargs)
        if shared := {name.split(_SHARED)[1]: value for name, value in selected.items() if _SHARED in name}:
            config.embedding_digest = embedding_digest(shared)  # PEFT writes the configuration after the weights
        return selected

    @classmethod
    def _remove_adapter_name_from_key(cls, key: str, adapter_name: str) -> str:
        return key.replace(f".mla_acquirers.{adapter_name}.", ".mla_acquirers.")


if MLA not in PEFT_TYPE_TO_TUNER_MAPPING:
    register_peft_method(name="mla", config_cls=MlaAdapterConfig, model_cls=MlaAdapterModel)

# ---- Files, and assembled models ----


def embedding_digest(weights: dict[str, Tensor]) -> str:
    """Computes SHA-256 of the weights of a non-native embedding, as float32 numbers, in hexadecimal digits."""
    digest = hashlib.sha256()
    names = ("table.weight", "projection.weight", "projection.bias")
    add_weights(digest, {name: weights[name].to(torch.float32) for name in names})
    return digest.hexdigest()


def save_adapter(
    model: MlaModel, language: str, folder: str | Path, *, base_model: str | None = None, **options: Any
) -> None:
    """Writes a language of a model, with the shared embedding, in PEFT's format: `adapter_config.json` and
    `adapter_model.safetensors`. `base_model` is the folder or Hub id of the adapter's model, by default of the native
    model; `options` are other keys of `MlaAdapterConfig`."""
    mine, parts = f".mla_acquirers.{language}.", model.text_parts
    weights = {
        _PREFIX + name.replace(".mla_embedding.", _SHARED).replace(mine, ".mla_acquirers."): value.cpu().contiguous()
        for name, value in model.native_model.state_dict().items()
        if mine in name or ".mla_embedding." in name
    }
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
    file = Path(folder, SAFETENSORS_WEIGHTS_NAME)
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(weights, file, metadata={"format": "pt"})
    apply_umask(file)
    config.save_pretrained(str(folder))


def to_mla_model(model: Any, *, share_weights: bool = False) -> MlaModel:
    """Makes an `MlaModel` with the languages of the adapters of a model, the result of `get_peft_model` or a dual
    encoder of transformers (`add_adapter`). With `share_weights`, training one model trains the other."""
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
        weights[name.replace(_SHARED, ".mla_embedding.")] = value
    take_precision(assembled.native_model, weights)
    assembled.native_model.load_state_dict(weights, assign=share_weights)
    return assembled.train(model.training)

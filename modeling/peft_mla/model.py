"""MLA as a PEFT method: a frozen dual encoder whose text tower gets one adapter for each acquired language.

    model = get_peft_model(clip, MlaAdapterConfig(language="de"), adapter_name="de")
    model.get_text_features(**tokens)                               # all rows in the active adapter's language
    model(**tokens, adapter_names=["de", "__base__", "fr", …])      # row by row; `__base__` is the plain model

An acquirer follows each whole block, and a non-native embedding complements the tower's own (Zhang et al. 2022,
section 3.2). Neither can be merged into the model. `acquirer` defines what a layer computes; the layers here decide
which rows of a batch are in which adapter's language.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, cast

import torch
from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer
from torch import Tensor, nn

from ...utils.errors import InputError
from ..acquirer import (
    AcquiredBlock,
    AcquiredEmbedding,
    Acquirer,
    BatchLanguages,
    NonNativeEmbedding,
    RowsByLanguage,
    TowerParts,
    eval_frozen,
    languages_in_use,
    languages_of_rows,
    tower_parts,
)
from .config import MlaAdapterConfig
from .conversion import embedding_digest, shared_weights

BASE = "__base__"  # PEFT's name for no adapter, in `adapter_names`

# ---- Layers ----


class MlaLayer(BaseTunerLayer):
    """Base class of the wrapped embedding and the wrapped blocks of a text tower."""

    def rows_of(self, count: int) -> BatchLanguages | None:
        """Returns the adapters of `count` rows: those set for the batch, else the active one; `None` means the
        plain model."""
        if self.disable_adapters:
            return None
        rows = languages_in_use(cast(nn.Module, self))
        if rows is not None:
            return rows
        active = [name for name in self.active_adapters if name in self._all_available_adapter_names()]
        return RowsByLanguage.all_in(active[0], count) if active else None

    def set_adapter(self, adapter_names: str | list[str], inference_mode: bool = False) -> None:
        """Activates one adapter."""
        if not isinstance(adapter_names, str) and len(adapter_names) > 1:
            raise ValueError(
                f"adapters {', '.join(adapter_names)}: a text is in one language. Batches that mix languages take "
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
        """Adds the acquirer of another adapter."""
        assert config.text_width is not None  # filled in from the model, before anything is injected
        self.mla_acquirers[adapter_name] = Acquirer(config.text_width, config.acquirer_size, config.acquirer)
        self._move_adapter_to_device_of_base_layer(adapter_name)
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)


class MlaEmbedding(MlaLayer, AcquiredEmbedding):
    """The text tower's embedding, with the vocabulary that all adapters share. It stays when adapters are deleted, and
    is trained while an adapter with `train_embedding` is active."""

    other_param_names = ("trains_embedding",)

    def __init__(
        self, parts: TowerParts, shared_embedding: NonNativeEmbedding, adapter_name: str, config: MlaAdapterConfig
    ) -> None:
        super().__init__(parts.embeddings, shared_embedding, config.sep_token_id, parts.end_token_id)
        # The base class calls the second vocabulary `mla_embedding`. When transformers loads an adapter, it adds its
        # name to every `mla_…` in the names of weights; but this vocabulary belongs to all adapters.
        del self.mla_embedding
        self.trains_embedding: dict[str, bool] = {}
        self._watching = self.watch(parts.tower)
        self._active_adapter = [adapter_name]
        self.update_layer(adapter_name, config, shared_embedding)

    def update_layer(
        self, adapter_name: str, config: MlaAdapterConfig, shared_embedding: NonNativeEmbedding | None = None
    ) -> None:
        """Adds another adapter; the first one brings the shared embedding."""
        if shared_embedding is not None:
            self.shared_embedding, self.sep_token_id = shared_embedding, config.sep_token_id
        self.trains_embedding[adapter_name] = config.train_embedding
        self._move_adapter_to_device_of_base_layer(adapter_name)
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)

    @property
    def non_native(self) -> NonNativeEmbedding:
        return self.shared_embedding

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
    """A dual encoder of transformers or babelens with MLA adapters in its text tower; `get_peft_model` builds it.

    The dual encoder, such as CLIP or MURAL, stays frozen, without dropout and new batch statistics. The name of an
    adapter may differ from its language.
    """

    prefix = "mla_"
    tuner_layer_cls = MlaLayer

    # ---- Injection ----

    def inject_adapter(
        self,
        model: nn.Module,
        adapter_name: str,
        autocast_adapter_dtype: bool = True,
        low_cpu_mem_usage: bool = False,
        state_dict: dict[str, Tensor] | None = None,
    ) -> None:
        # `state_dict` is not passed on: the configuration determines which modules are wrapped.
        try:
            super().inject_adapter(model, adapter_name, autocast_adapter_dtype, low_cpu_mem_usage)
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
        return tower_parts(self.model, getattr(self.model, "config", None))

    def _prepare_model(self, config: MlaAdapterConfig, model: nn.Module) -> None:
        """Compares the shared embedding that an adapter needs with the model's, if it has one."""
        needed, present = config.embedding_digest, embedding_in_use(model)
        if present is None:
            return
        table, own = present.shared_embedding.table, embedding_digest(present.shared_embedding.state_dict())
        sizes = table.num_embeddings, table.embedding_dim, present.sep_token_id
        if sizes != (config.vocab_size, config.embedding_size, config.sep_token_id) or needed not in (None, own):
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
        current_key: str,
        **kwargs: Any,
    ) -> None:
        if isinstance(target, MlaEmbedding):
            target.update_layer(adapter_name, config, None if target.trains_embedding else self._new_embedding(config))
        elif isinstance(target, MlaBlock):
            target.update_layer(adapter_name, config)
        elif isinstance(parent, nn.ModuleList):
            self._replace_module(parent, target_name, MlaBlock(target, adapter_name, config), target)
        else:
            embedding = MlaEmbedding(self._parts(), self._new_embedding(config), adapter_name, config)
            self._replace_module(parent, target_name, embedding, target)

    def _new_embedding(self, config: MlaAdapterConfig) -> NonNativeEmbedding:
        return NonNativeEmbedding(config.vocab_size, config.embedding_size, self._parts().embedding_width)

    def _replace_module(self, parent: nn.Module, child_name: str, new_module: nn.Module, child: nn.Module) -> None:
        setattr(parent, child_name, new_module)

    def _check_merge_allowed(self) -> None:
        raise ValueError("MLA adapters cannot be merged into the model, because acquirers are separate layers")

    def add_weighted_adapter(self, *args: Any, **kwargs: Any) -> None:
        raise ValueError("MLA adapters cannot be added up: adapter_names=['de', 'fr', …] chooses one for each row")

    # ---- Running ----

    @contextmanager
    def _enable_peft_forward_hooks(
        self, *args: Any, adapter_names: Sequence[str] | None = None, **kwargs: Any
    ) -> Iterator[None]:
        if adapter_names is None:
            yield
            return
        unknown = sorted(set(adapter_names) - {BASE, *self.peft_config})
        if unknown:
            raise ValueError(
                f"adapter_names has {', '.join(unknown)}; this model has {', '.join([BASE, *self.peft_config])}"
            )
        rows = RowsByLanguage([None if name == BASE else name for name in adapter_names])
        with languages_of_rows(self.model, rows):
            yield

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        eval_frozen(self.model, training=mode)
        return self

    # ---- Files ----

    @classmethod
    def _get_adapter_state_dict(
        cls,
        model: nn.Module,
        config: MlaAdapterConfig,
        adapter_name: str,
        state_dict: dict[str, Tensor],
        **kwargs: Any,
    ) -> dict[str, Tensor]:
        selected = super()._get_adapter_state_dict(
            model=model, config=config, adapter_name=adapter_name, state_dict=state_dict, **kwargs
        )
        if shared := shared_weights(selected):
            config.embedding_digest = embedding_digest(shared)  # PEFT writes the configuration after the weights
        return selected

    @classmethod
    def _remove_adapter_name_from_key(cls, key: str, adapter_name: str) -> str:
        return key.replace(f".mla_acquirers.{adapter_name}.", ".mla_acquirers.")


def embedding_in_use(model: nn.Module) -> MlaEmbedding | None:
    """Returns the layer that holds the shared embedding of a model, or `None` if the model has no adapter."""
    layers = (module for module in model.modules() if isinstance(module, MlaEmbedding) and module.trains_embedding)
    return next(layers, None)

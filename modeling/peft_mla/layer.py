"""MLA's layers for PEFT: acquirers by adapter name; one is active, and all can be disabled and deleted.

`acquirer` defines what a layer computes; this module decides which rows of a batch are in which adapter's language.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn

from ..acquirer import (
    AcquiredBlock,
    AcquiredEmbedding,
    Acquirer,
    BatchLanguages,
    NonNativeEmbedding,
    RowsByLanguage,
    TowerParts,
    languages_in_use,
)
from .config import MlaAdapterConfig


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


def shared_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the weights of the shared embedding among those of an adapter or a model, by their own names."""
    return {name.split(".shared_embedding.")[1]: v for name, v in weights.items() if ".shared_embedding." in name}

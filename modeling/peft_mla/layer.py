"""MLA's layers for PEFT: acquirers by adapter name, of which one is active, and which can be disabled and deleted.

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
    languages_in_use,
)
from ..native_tower import NativeMarks
from .config import MlaAdapterConfig


class MlaLayer(BaseTunerLayer):
    """Base class of the wrapped embedding and the wrapped blocks of a text tower."""

    def rows_of(self, count: int) -> BatchLanguages | None:
        """Returns the adapters of `count` rows: those set for the batch, else the active one; `None` stands for the
        plain model."""
        if self.disable_adapters:
            return None
        rows = languages_in_use(cast(nn.Module, self))
        if rows is not None:
            return rows
        active = [name for name in self.active_adapters if name in self._all_available_adapter_names()]
        return RowsByLanguage.all_in(active[0], count) if active else None

    def set_adapter(self, adapter_names: str | list[str], inference_mode: bool = False) -> None:
        """Activates one adapter.

        Raises:
            ValueError: if there are several; a batch that mixes languages takes `adapter_names`.
        """
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
        width = config.text_width
        assert width is not None  # filled in from the model, before anything is injected
        self.mla_acquirers[adapter_name] = Acquirer(width, config.acquirer_size, config.acquirer)
        self._move_adapter_to_device_of_base_layer(adapter_name)
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)

    def _acquire(self, language: str | None, hidden_states: Tensor) -> Tensor:
        if language is None:
            return hidden_states
        acquirer = self.mla_acquirers[language]
        wide = self._cast_input_dtype(hidden_states, next(acquirer.parameters()).dtype)
        return acquirer(wide).to(hidden_states.dtype)


class MlaEmbedding(MlaLayer, AcquiredEmbedding):
    """The text tower's embedding, with the vocabulary that all adapters share.

    The whole model has one shared embedding, in float32; it stays when adapters are deleted. It is trained while an
    adapter is active whose configuration has `train_embedding`.

    Args:
        base_layer: the tower's own embedding.
        tower: the text tower.
        shared_embedding: the second vocabulary.
        marks: what the tower looks for in the ids, as in `AcquiredEmbedding`.
        adapter_name, config: the first adapter.
    """

    other_param_names = ("trains_embedding",)

    def __init__(
        self,
        base_layer: nn.Module,
        tower: nn.Module,
        shared_embedding: NonNativeEmbedding,
        marks: NativeMarks,
        adapter_name: str,
        config: MlaAdapterConfig,
    ) -> None:
        super().__init__(base_layer, shared_embedding, config.sep_token_id, marks)
        # The base class calls the second vocabulary `mla_embedding`. When transformers loads an adapter, it puts its
        # name behind every `mla_…` in the names of weights; but this vocabulary belongs to no single adapter.
        del self.mla_embedding
        self.trains_embedding: dict[str, bool] = {}
        self._watching = self.watch(tower)
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

    def embed_non_native(self, input_ids: Tensor) -> Tensor:
        return self.shared_embedding(input_ids).to(next(self.base_layer.parameters()).dtype)

    # ---- What PEFT asks of a layer ----

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

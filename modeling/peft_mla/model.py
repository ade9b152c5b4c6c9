"""MLA as a PEFT method: a frozen dual encoder whose text tower gets one adapter for each acquired language.

    model = get_peft_model(clip, MlaAdapterConfig(language="de"), adapter_name="de")
    model.get_text_features(**tokens)                               # all rows in the active adapter's language
    model(**tokens, adapter_names=["de", "__base__", "fr", …])      # row by row; `__base__` is the plain model

An acquirer follows each whole block, and a non-native embedding complements the tower's own (Zhang et al. 2022,
section 3.2). Neither can be merged into the model.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from peft.tuners.tuners_utils import BaseTuner
from torch import Tensor, nn

from ...configuration.text_towers import text_tower
from ...utils.errors import InputError
from ..acquirer import NonNativeEmbedding, RowsByLanguage, TowerParts, eval_frozen, languages_of_rows, tower_parts
from .config import MlaAdapterConfig
from .embedding import embedding_digest, load_embedding
from .layer import MlaBlock, MlaEmbedding, MlaLayer, shared_weights

BASE = "__base__"  # PEFT's name for no adapter, in `adapter_names`


class MlaAdapterModel(BaseTuner):
    """A dual encoder of transformers or babelens with MLA adapters in its text tower; `get_peft_model` builds it.

    The dual encoder, of a kind in `TEXT_TOWERS`, stays frozen, without dropout and new batch statistics. The name of
    an adapter may differ from its language.
    """

    prefix = "mla_"
    tuner_layer_cls = MlaLayer
    _stored: dict[str, Tensor] | None = None  # the shared embedding, while the first adapter is injected

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
        finally:
            self._stored = None

    def _check_new_adapter_config(self, config: MlaAdapterConfig) -> None:
        super()._check_new_adapter_config(config)
        where, parts = text_tower(getattr(self.model, "config", None)), self._parts()
        own = len(parts.blocks), parts.width, where.target_modules
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
        config: Any = getattr(self.model, "config", None)
        return tower_parts(self.model, config, text_tower(config))

    def _prepare_model(self, config: MlaAdapterConfig, model: nn.Module) -> None:
        """Compares the shared embedding of an adapter with the model's, or reads it for the first adapter."""
        needed, present, stored = config.embedding_digest, embedding_in_use(model), None
        if config.embedding is not None and (present is None or needed is None):
            stored = load_embedding(config.embedding)
        if present is None:
            if stored is not None and needed not in (None, embedding_digest(stored)):
                raise InputError(
                    f"the embedding stored at {config.embedding} is not the one that the {config.language!r} adapter "
                    "needs; save_embedding(model, folder) stores a model's present one"
                )
            self._stored = stored
            return
        table = present.shared_embedding.table
        own = table.num_embeddings, table.embedding_dim, present.sep_token_id
        needed = needed or (embedding_digest(stored) if stored is not None else None)
        if own != (config.vocab_size, config.embedding_size, config.sep_token_id) or needed not in (
            None,
            embedding_digest(present.shared_embedding.state_dict()),
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
        embedding = NonNativeEmbedding(config.vocab_size, config.embedding_size, self._parts().embedding_width)
        if self._stored is not None and not embedding.table.weight.is_meta:
            embedding.load_state_dict(self._stored)
        return embedding

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
        if config.embedding is None:
            return selected
        return {name: value for name, value in selected.items() if ".shared_embedding." not in name}

    @classmethod
    def _remove_adapter_name_from_key(cls, key: str, adapter_name: str) -> str:
        return key.replace(f".mla_acquirers.{adapter_name}.", ".mla_acquirers.")

    @classmethod
    def _remap_adapter_state_dict_for_load(
        cls, model: nn.Module, config: MlaAdapterConfig, adapter_name: str, state_dict: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        remapped = super()._remap_adapter_state_dict_for_load(model, config, adapter_name, state_dict)
        # If it was injected without memory (`low_cpu_mem_usage`), the shared embedding gets its weights here.
        empty = [name for name, value in model.named_parameters() if ".shared_embedding." in name and value.is_meta]
        if empty and config.embedding is not None:
            weights = load_embedding(config.embedding)
            remapped.update({name: weights[name.split(".shared_embedding.")[1]] for name in empty})
        return remapped


def embedding_in_use(model: nn.Module) -> MlaEmbedding | None:
    """Returns the layer that holds the shared embedding of a model, or `None` if the model has no adapter."""
    layers = (module for module in model.modules() if isinstance(module, MlaEmbedding) and module.trains_embedding)
    return next(layers, None)

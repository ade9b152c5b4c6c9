"""MLA as a PEFT method: a frozen dual encoder whose text tower gets one adapter for each acquired language.

    model = get_peft_model(clip, MlaAdapterConfig(language="de"), adapter_name="de")
    model.get_text_features(**tokens)                               # all rows in the active adapter's language
    model(**tokens, adapter_names=["de", "__base__", "fr", …])      # row by row; `__base__` is the plain model

An acquirer follows each whole block, and the non-native embedding stands beside the tower's own (Zhang et al. 2022,
section 3.2). Neither can be merged into the model.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from peft.tuners.tuners_utils import BaseTuner
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ...configuration.text_towers import TextTower, text_tower
from ...utils.errors import ModelMismatchError
from ..acquirer import NonNativeEmbedding, RowsByLanguage, languages_of_rows
from ..native_tower import native_marks, tower_parts
from .config import MlaAdapterConfig
from .embedding import StoredEmbedding, embedding_digest, load_embedding
from .layer import MlaBlock, MlaEmbedding, MlaLayer

BASE = "__base__"  # PEFT's name for no adapter, in `adapter_names`
SHARED = ".shared_embedding."  # in the names of what all adapters share


class MlaAdapterModel(BaseTuner):
    """A dual encoder of transformers or babelens with MLA adapters in its text tower; `get_peft_model` builds it.

    Args:
        model: the dual encoder, of a kind in `TEXT_TOWERS` or with a declared `text_tower`. It is frozen, in training
            too: it has neither dropout nor new batch statistics.
        peft_config: configuration of the first adapter.
        adapter_name: its name, which may differ from its language.

    Raises:
        ModelKindError: if the model is no dual encoder, or the parts of its text tower are neither known nor declared.
        ModelMismatchError: if the adapter was made for another model or another shared embedding, or the model already
            has its language.
        ModelFolderError: if the shared embedding cannot be read from where the configuration names it.
    """

    prefix = "mla_"
    tuner_layer_cls = MlaLayer
    _stored: StoredEmbedding | None = None  # set while an adapter is injected

    # ---- Before an adapter is injected ----

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
        self._check_tower(config)
        self._check_language(config)

    def _check_tower(self, config: MlaAdapterConfig) -> None:
        where = _where(self.model, config)
        parts = tower_parts(self.model, where)
        layers, width = len(parts.blocks), parts.width
        made_for = config.text_layers or layers, config.text_width or width
        if made_for != (layers, width) or config.target_modules not in (None, where.target_modules):
            raise ModelMismatchError(
                f"the {config.language!r} adapter was made for another model: a text tower of {made_for[0]} blocks, "
                f"{made_for[1]} wide, at {config.target_modules or where.target_modules}; this one has {layers} "
                f"blocks, {width} wide, at {where.target_modules}"
            )
        config.text_layers, config.text_width, config.target_modules = layers, width, where.target_modules

    def _check_language(self, config: MlaAdapterConfig) -> None:
        languages = [other.language for other in self.peft_config.values()]  # including the new one
        if languages.count(config.language) > 1:
            raise ModelMismatchError(f"this model has acquired {config.language!r} already; delete that adapter first")

    def _prepare_model(self, config: MlaAdapterConfig, model: nn.Module) -> None:
        """Compares the shared embedding of an adapter with the model's, or reads it for the first adapter."""
        present = embedding_in_use(model)
        if present is not None:
            _check_shared(config, present)
        elif config.embedding is not None:
            stored = load_embedding(config.embedding)
            _check_stored(config, stored, tower_parts(model, _where(model, config)).embedding_width)
            self._stored = stored

    # ---- Injection ----

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
            where = _where(self.model, config)
            tower = self.model.get_submodule(where.path)
            marks = native_marks(self.model.config, tower, where)
            embedding = MlaEmbedding(target, tower, self._new_embedding(config), marks, adapter_name, config)
            self._replace_module(parent, target_name, embedding, target)

    def _new_embedding(self, config: MlaAdapterConfig) -> NonNativeEmbedding:
        width = tower_parts(self.model, _where(self.model, config)).embedding_width
        embedding = NonNativeEmbedding(config.vocab_size, config.embedding_size, width)
        if self._stored is not None and not embedding.table.weight.is_meta:
            embedding.load_state_dict(self._stored.weights)
        return embedding

    def _replace_module(self, parent: nn.Module, child_name: str, new_module: nn.Module, child: nn.Module) -> None:
        setattr(parent, child_name, new_module)

    def _check_merge_allowed(self) -> None:
        raise ValueError(
            "MLA adapters cannot be merged into the model: acquirers are layers of their own, with a non-linearity, "
            "and come with a second vocabulary. unload() gives back the plain model"
        )

    def add_weighted_adapter(self, *args: Any, **kwargs: Any) -> None:
        """
        Raises:
            ValueError: always, with the reason.
        """
        raise ValueError(
            "MLA adapters cannot be added up to one: between their layers is a non-linearity, and each stands for a "
            "language. adapter_names=['de', 'fr', …] reads each row of a batch by its own"
        )

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
        self.model.eval()  # no dropout and no new batch statistics in frozen parts; acquirers have neither
        for module in self.model.modules():
            if isinstance(module, GradientCheckpointingLayer):
                # Of the layer alone, which recomputes its activations for the gradient only in training mode.
                module.training = mode
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
        acquirers = {name: value for name, value in selected.items() if SHARED not in name}
        shared = {name.split(SHARED)[1]: value for name, value in selected.items() if SHARED in name}
        if shared:
            config.embedding_digest = embedding_digest(shared)  # PEFT writes the configuration after the weights
        return selected if config.embedding is None else acquirers

    @classmethod
    def _remove_adapter_name_from_key(cls, key: str, adapter_name: str) -> str:
        return key.replace(f".mla_acquirers.{adapter_name}.", ".mla_acquirers.")

    @classmethod
    def _remap_adapter_state_dict_for_load(
        cls, model: nn.Module, config: MlaAdapterConfig, adapter_name: str, state_dict: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        remapped = super()._remap_adapter_state_dict_for_load(model, config, adapter_name, state_dict)
        # If it was injected without memory (`low_cpu_mem_usage`), the shared embedding gets its weights here.
        empty = [name for name, value in model.named_parameters() if SHARED in name and value.is_meta]
        if empty and config.embedding is not None:
            weights = load_embedding(config.embedding).weights
            remapped.update({name: weights[name.split(SHARED)[1]] for name in empty})
        return remapped


def embedding_in_use(model: nn.Module) -> MlaEmbedding | None:
    """Returns the layer that holds the shared embedding of a model, or `None` if the model has no adapter."""
    layers = (module for module in model.modules() if isinstance(module, MlaEmbedding) and module.trains_embedding)
    return next(layers, None)


def _where(model: nn.Module, config: MlaAdapterConfig) -> TextTower:
    return text_tower(getattr(model, "config", None), config.text_tower)


def _check_shared(config: MlaAdapterConfig, present: MlaEmbedding) -> None:
    table = present.shared_embedding.table
    sizes = {"vocab_size": table.num_embeddings, "embedding_size": table.embedding_dim}
    for name, size in (sizes | {"sep_token_id": present.sep_token_id}).items():
        if getattr(config, name) != size:
            raise ModelMismatchError(
                f"the {config.language!r} adapter has {name}={getattr(config, name)}, and the embedding that this "
                f"model's languages share {size}"
            )
    digest = config.embedding_digest
    if digest is None and config.embedding is not None:
        digest = embedding_digest(load_embedding(config.embedding).weights)
    if digest is not None and digest != embedding_digest(present.shared_embedding.state_dict()):
        raise ModelMismatchError(
            f"the {config.language!r} adapter needs another shared embedding than this model's languages, and a model "
            "has only one. Languages can be combined if they were acquired on one embedding with "
            "train_embedding=False"
        )


def _check_stored(config: MlaAdapterConfig, stored: StoredEmbedding, width: int) -> None:
    shape = stored.shape
    made_for = config.vocab_size, config.embedding_size, config.sep_token_id, width
    if (shape.vocab_size, shape.embedding_size, shape.sep_token_id, shape.width) != made_for:
        raise ModelMismatchError(
            f"the embedding stored at {stored.source} is {shape}; the {config.language!r} adapter needs "
            f"vocab_size={config.vocab_size}, embedding_size={config.embedding_size}, "
            f"sep_token_id={config.sep_token_id}, and the model width={width}"
        )
    if config.embedding_digest not in (None, embedding_digest(stored.weights)):
        raise ModelMismatchError(
            f"the embedding stored at {stored.source} is not the one that the {config.language!r} adapter needs: "
            "one of them was trained or replaced since. save_embedding(model, folder) stores a model's present one"
        )

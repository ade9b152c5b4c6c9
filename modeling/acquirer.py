"""MLA's language acquirers (Zhang et al. 2022, section 3.2), and the layers that wrap those of a frozen text tower:

    AcquiredEmbedding   embeds rows in an acquired language with a second vocabulary, and native rows as before
    AcquiredBlock       runs the whole block, then the acquirer of each row's language

While the tower runs, each thread stores the language of each row in its batch (`languages_of_rows`). `modeling_mla`
and `peft_mla` use the same layers; only the names of their weights differ.
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, initialization as init

from ..configuration.configuration_mla import tower_pooling
from ..utils.errors import ModelKindError
from .modeling_common import initialized_by_itself, is_exporting

# ---- Rows by language ----


class RowsByLanguage:
    """The language of each row in a batch; `None` means the native language."""

    def __init__(self, languages: Sequence[str | None]) -> None:
        self.count = len(languages)
        self.groups: dict[str | None, list[int]] = {}
        for row, language in enumerate(languages):
            self.groups.setdefault(language, []).append(row)
        self._positions: dict[torch.device, tuple[list[Tensor], Tensor]] = {}

    @classmethod
    def all_in(cls, language: str | None, count: int) -> "RowsByLanguage":
        """Returns an assignment of `count` rows to a single language."""
        rows = cls([language])
        rows.count = count  # may be symbolic, in a graph for batches of any size
        return rows

    def map(self, function: Callable[[str | None, Tensor], Tensor], rows: Tensor) -> Tensor:
        """Applies a function to each language and its rows, and restores the order of the results. [N, …] -> [N, …]"""
        if rows.shape[0] != self.count:
            raise ValueError(f"there are languages for {self.count} rows, but the batch has {rows.shape[0]}")
        if len(self.groups) == 1:
            return function(next(iter(self.groups)), rows)
        if rows.device not in self._positions:
            groups = [torch.tensor(each, device=rows.device) for each in self.groups.values()]
            self._positions[rows.device] = groups, torch.argsort(torch.cat(groups))
        groups, order = self._positions[rows.device]
        parts = [function(language, rows[group]) for language, group in zip(self.groups, groups, strict=True)]
        return torch.cat(parts)[order]

    def by_vocabulary(self) -> "RowsByLanguage":
        return self

    def ids_of(self, language: str | None, input_ids: Tensor, rows: Tensor) -> Tensor:
        """Returns the token ids of a language's rows."""
        return input_ids[rows]


class MasksByLanguage:
    """`RowsByLanguage` for exported graphs, whose input are language ids [N]: each language computes all rows."""

    def __init__(self, languages: Sequence[str | None], ids: Tensor) -> None:
        self.languages, self.ids = list(languages), ids

    def map(self, function: Callable[[str | None, Tensor], Tensor], rows: Tensor) -> Tensor:
        found = function(self.languages[0], rows)
        for number, language in enumerate(self.languages[1:], start=1):
            is_mine = (self.ids == number).reshape(-1, *[1] * (found.dim() - 1))
            found = torch.where(is_mine, function(language, rows), found)
        return found

    def by_vocabulary(self) -> "MasksByLanguage":
        """Returns masks with one language for each vocabulary."""
        return MasksByLanguage(self.languages[:2], self.ids.clamp(max=1))

    def ids_of(self, language: str | None, input_ids: Tensor, rows: Tensor) -> Tensor:
        """Returns the token ids of a language's rows, with 0 in all other rows, which every vocabulary has."""
        return torch.where((self.ids == self.languages.index(language))[:, None], input_ids, 0)


BatchLanguages = RowsByLanguage | MasksByLanguage


class _Call(threading.local):  # a context variable would work too, but torch.compile does not trace it
    """The assignments of this thread, by the ids of wrapped layers; the dictionaries are never modified."""

    rows: Mapping[int, BatchLanguages | None] = MappingProxyType({})
    ids: Mapping[int, Tensor | None] = MappingProxyType({})  # of an embedding, before marking


_CALL = _Call()


def not_compiled_in_training(method: Callable[..., Any]) -> Callable[..., Any]:
    """Excludes a method from `torch.compile` graphs while gradients are computed: separate graphs would not see values
    that this thread stored between them."""
    eager = torch.compiler.disable(method)

    @wraps(method)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (eager if torch.is_grad_enabled() else method)(*args, **kwargs)

    return chosen


# ---- Acquirers ----


def initialize_linears(module: nn.Module) -> None:
    """Initializes linear layers as PyTorch and the authors' code do, unlike the text tower."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            init.kaiming_uniform_(part.weight, a=5**0.5)
            bound = 1 / part.in_features**0.5
            init.uniform_(part.bias, -bound, bound)


class Acquirer(nn.Module):
    """A language's layer after a block: y = x + W2 ReLU(W1 x + b1) + b2, or y = x + W x + b (equation 3, table 1).
    [N, T, width] -> [N, T, width]"""

    reset_parameters = initialize_linears

    def __init__(self, width: int, size: int, structure: Literal["mlp", "linear"] = "mlp") -> None:
        super().__init__()
        self.structure = structure
        if structure == "mlp":
            self.down, self.up = nn.Linear(width, size), nn.Linear(size, width)
        else:
            self.map = nn.Linear(width, width)
        self.reset_parameters()
        initialized_by_itself(self)

    def forward(self, hidden_states: Tensor) -> Tensor:
        if self.structure == "linear":
            return hidden_states + self.map(hidden_states)
        return hidden_states + self.up(self.down(hidden_states).relu())


class NonNativeEmbedding(nn.Module):
    """Embedding of the acquired languages' vocabulary, projected to the tower's width. [N, T] -> [N, T, width]"""

    def __init__(self, vocab_size: int, embedding_size: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, embedding_size)
        self.projection = nn.Linear(embedding_size, width)
        self.reset_parameters()
        initialized_by_itself(self)

    def reset_parameters(self) -> None:
        init.normal_(self.table.weight, std=0.02)
        initialize_linears(self)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.projection(self.table(input_ids))


# ---- Wrapped layers ----


class WrappedLayer(nn.Module):
    """Base class of a frozen layer with new layers around it."""

    base_layer: nn.Module

    def __getattr__(self, name: str) -> Any:
        """Also looks attributes up on the wrapped layer, such as the table of an embedding."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "base_layer":  # not set yet on a copy in progress
                raise
            return getattr(self.base_layer, name)

    def rows_of(self, count: int) -> BatchLanguages | None:
        """Returns the languages of a batch of `count` rows, or `None` if all rows are native."""
        return _CALL.rows.get(id(self))


class AcquiredBlock(WrappedLayer):
    """A frozen block, which returns states or a tuple that begins with them, and the acquirers of the languages."""

    def __init__(self, base_layer: nn.Module) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.mla_acquirers = nn.ModuleDict()

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Runs the block, then the acquirers. [N, T, d] -> [N, T, d]"""

        def acquire(language: str | None, states: Tensor) -> Tensor:
            if language is None:
                return states
            acquirer = self.mla_acquirers[language]
            return acquirer(states.to(next(acquirer.parameters()).dtype)).to(states.dtype)

        output = self.base_layer(hidden_states, *args, **kwargs)
        hidden_states = output[0] if isinstance(output, tuple) else output
        if (rows := self.rows_of(hidden_states.shape[0])) is None:
            return output
        acquired = rows.map(acquire, hidden_states)
        return (acquired, *output[1:]) if isinstance(output, tuple) else acquired


class AcquiredEmbedding(WrappedLayer):
    """The frozen embedding of a text tower, with a second vocabulary for rows in acquired languages, at the tower's
    positions. A tower that pools at its end-of-text token (`end_token_id`) searches the ids for it; the hook of
    `watch` therefore puts it at the first closing token (`sep_token_id`) of these rows."""

    non_native_name = "mla_embedding"

    def __init__(
        self, base_layer: nn.Module, non_native: NonNativeEmbedding, sep_token_id: int, end_token_id: int | None
    ) -> None:
        super().__init__()
        self.base_layer = base_layer
        setattr(self, self.non_native_name, non_native)
        self.sep_token_id, self.end_token_id = sep_token_id, end_token_id

    def watch(self, tower: nn.Module) -> Any:
        """Registers the hook that changes the ids before the tower reads them; returns the handle that removes it."""
        return tower.register_forward_pre_hook(self._mark_ids, with_kwargs=True)

    @not_compiled_in_training
    def _mark_ids(self, tower: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        input_ids = args[0] if args else kwargs.get("input_ids")
        rows = None if input_ids is None or self.end_token_id is None else self.rows_of(input_ids.shape[0])
        _CALL.ids = {**_CALL.ids, id(self): None if rows is None else input_ids}
        if rows is None:
            return None
        marked = rows.by_vocabulary().map(self._marked, input_ids)
        return ((marked, *args[1:]), kwargs) if args else (args, kwargs | {"input_ids": marked})

    def _marked(self, language: str | None, input_ids: Tensor) -> Tensor:
        """Returns ids of native texts that end at the first closing token of the given ids."""
        if language is None:
            return input_ids
        is_closing = input_ids == self.sep_token_id  # [N, T]
        if not is_exporting() and not is_closing.any(-1).all():
            raise ValueError(
                f"a text has no [SEP] (id {self.sep_token_id}): the tokenizer must end every text with it"
            )
        end = is_closing.int().argmax(-1, keepdim=True)
        # Other tokens get a small id, because CLIP with `eos_token_id=2` pools at the largest one.
        return torch.full_like(input_ids, int(self.end_token_id == 0)).scatter(1, end, self.end_token_id)

    @not_compiled_in_training
    def forward(self, input_ids: Tensor | None = None, **kwargs: Any) -> Tensor:
        """Embeds a batch whose rows may be in different languages. [N, T] -> [N, T, width]"""
        unmarked = _CALL.ids.get(id(self))
        _CALL.ids = {layer: found for layer, found in _CALL.ids.items() if layer != id(self)}
        ids = input_ids if unmarked is None else unmarked
        rows = None if ids is None else self.rows_of(ids.shape[0])
        if ids is None or rows is None:
            return self.base_layer(input_ids, **kwargs)
        vocabularies, count = rows.by_vocabulary(), ids.shape[0]

        def embed(language: str | None, chosen: Tensor) -> Tensor:
            # Positions and segments have one row for all texts, or one for each.
            others = {
                k: v[chosen] if isinstance(v, Tensor) and v.shape[0] == count > 1 else v for k, v in kwargs.items()
            }
            own = vocabularies.ids_of(language, ids, chosen)
            if language is None:
                return self.base_layer(own, **others)
            embeds = self.non_native(own).to(next(self.base_layer.parameters()).dtype)
            return self.base_layer(**others | {"input_ids": None, "inputs_embeds": embeds})

        return vocabularies.map(embed, torch.arange(count, device=ids.device))

    @property
    def non_native(self) -> NonNativeEmbedding:
        return getattr(self, self.non_native_name)


@contextmanager
def languages_of_rows(model: nn.Module, rows: BatchLanguages | None) -> Iterator[None]:
    """Inside the block, every wrapped layer of `model` uses this assignment of rows to languages, in this thread."""
    layers = [id(module) for module in model.modules() if isinstance(module, WrappedLayer)]
    before, ids = _CALL.rows, _CALL.ids
    _CALL.rows = {**before, **dict.fromkeys(layers, rows)}
    try:
        yield
    finally:
        _CALL.rows, _CALL.ids = before, ids


def eval_frozen(module: nn.Module, training: bool) -> None:
    """Sets evaluation mode, with no dropout and no new batch statistics; acquirers have neither. A wrapped layer
    recomputes its activations for the gradient only in training mode, so it keeps that mode."""
    module.eval()
    for block in module.modules():
        if isinstance(block, AcquiredBlock):
            block.base_layer.training = training


# ---- Text towers ----


class TowerParts:
    """The text tower of a dual encoder, whose layers may already be wrapped, and its parts that MLA wraps."""

    def __init__(self, model: Any, config: PreTrainedConfig | None) -> None:
        pooling, tower, text = tower_pooling(config), model.text_model, model.config.text_config
        tables = ((name, part) for name, part in tower.named_modules() if isinstance(part, nn.Embedding))
        name, table = next(tables)  # of tokens; those of positions follow
        blocks = name_of_blocks(tower, text)
        self.tower, self.embeddings_name = tower, name.rpartition(".")[0].removesuffix(".base_layer")
        self.embeddings: Any = tower.get_submodule(self.embeddings_name)
        self.blocks: Any = tower.get_submodule(blocks)
        self.embedding_width, self.width = table.embedding_dim, text.hidden_size  # of the table, and of states
        # The end-of-text token at which the tower pools; None if it pools elsewhere.
        self.end_token_id: int | None = text.eos_token_id if pooling == "eos" else None
        # Pattern that matches the names of the model's embedding and blocks.
        self.target_modules = rf"(.*\.)?text_model\.({self.embeddings_name}|{blocks}\.\d+)"


def name_of_blocks(encoder: nn.Module, config: PreTrainedConfig) -> str:
    """Returns the name of a text encoder's list of blocks, its only outermost list of `num_hidden_layers` modules."""
    found: list[str] = []
    count = config.num_hidden_layers
    for name, part in encoder.named_modules():  # an outer list precedes those in it
        is_inner = any(name.startswith(f"{outer}.") for outer in found)
        if isinstance(part, nn.ModuleList) and not is_inner and len(part) == count:
            found.append(name)
    if len(found) != 1:
        raise ModelKindError(f"acquirers need one list of {count} blocks; a {config.model_type!r} has {len(found)}")
    return found[0]


# ---- Weights ----


def plain_name(name: str) -> str:
    """Returns the name of a wrapped layer without the wrapper."""
    return re.sub(r"\.base_layer\b", "", name)


def plain_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """Returns the weights of a model with wrapped layers under their names without the wrappers."""
    return {plain_name(name): value for name, value in model.state_dict().items() if ".mla_" not in name}


def load_plain_state_dict(model: nn.Module, weights: dict[str, Tensor]) -> dict[str, str]:
    """Loads a plain model's weights into one with wrapped layers, in their precision; returns their names there."""
    own = {plain_name(name): name for name in model.state_dict() if ".mla_" not in name}
    weights = {own.get(name, name): value for name, value in weights.items()}
    take_precision(model, weights)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    wrong = [name for name in missing if ".mla_" not in name] + unexpected
    if wrong:
        raise ValueError(f"these are not the weights of a {type(model).__name__} of this configuration: {wrong[:5]}")
    return own


def take_precision(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Converts the weights of a model to the precision of the given weights, before loading them."""
    for name, own in model.state_dict(keep_vars=True).items():
        if own.is_floating_point() and name in weights:
            own.data = own.data.to(weights[name].dtype)

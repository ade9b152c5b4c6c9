"""MLA's language acquirers, and how a frozen text tower takes them in (Zhang et al. 2022, section 3.2).

A text tower stays what it is; each of its blocks, and its embedding, is wrapped:

    AcquiredEmbedding   rows of another language are embedded from a second vocabulary, the others as ever
    AcquiredBlock       the whole block, then the acquirer of each row's language

Which row of a batch is in which language stands in `rows` while the tower runs (`languages_of_rows`). The same layers
serve the assembled model (`modeling_mla`) and the PEFT method (`peft_mla`), so that weights convert by name.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, initialization as init

from ..configuration.errors import ModelKindError
from .exporting import is_exporting
from .weights_as_made import initialized_by_itself


@dataclass(frozen=True)
class TextTower:
    """Where a dual encoder has its text tower's embedding and blocks, and which state it pools.

    Attributes:
        path: the tower.
        embeddings, blocks: below it; `blocks` is a list.
        pooling: `end`, the state at the end-of-text token (CLIP); `first`, at [CLS] (BERT); `last`, at the last place
            of a text that is padded to the full length (SigLIP).
    """

    path: str
    embeddings: str
    blocks: str
    pooling: Literal["end", "first", "last"]

    @property
    def target_modules(self) -> str:
        """A pattern that the names of the embedding and of the blocks match, from the model down."""
        return rf"(.*\.)?{self.path}\.({self.embeddings}|{self.blocks}\.\d+)"


# Dual encoders that can acquire languages, by `model_type`. Another one needs a line here.
TEXT_TOWERS = {
    "clip": TextTower("text_model", "embeddings", "encoder.layers", "end"),
    "siglip": TextTower("text_model", "embeddings", "encoder.layers", "last"),
    "align": TextTower("text_model", "embeddings", "encoder.layer", "first"),
    "mural": TextTower("text_model", "embeddings", "encoder.layer", "first"),
}


def text_tower(model_type: str) -> TextTower:
    """The text tower of a kind of dual encoder.

    Raises:
        ModelKindError: for a kind that is not known.
    """
    if model_type not in TEXT_TOWERS:
        raise ModelKindError(
            f"MLA does not know the text tower of a {model_type!r} model; it knows those of {', '.join(TEXT_TOWERS)}. "
            "TEXT_TOWERS in modeling/acquirer.py takes another one in a line."
        )
    return TEXT_TOWERS[model_type]


class Acquirer(nn.Module):
    """What a language adds to a block: y = x + W2 ReLU(W1 x + b1) + b2, or y = x + W x + b (equation 3, table 1).

    Args:
        width: d, of the block's states.
        size: of the hidden layer of `mlp`; the paper's is 256.
        structure: `mlp` or `linear`.

    Shape: [N, T, d] -> [N, T, d].
    """

    def __init__(self, width: int, size: int, structure: Literal["mlp", "linear"] = "mlp") -> None:
        super().__init__()
        self.structure = structure
        if structure == "mlp":
            self.down, self.up = nn.Linear(width, size), nn.Linear(size, width)
        else:
            self.map = nn.Linear(width, width)
        self.reset_parameters()
        initialized_by_itself(self)

    def reset_parameters(self) -> None:
        initialize_linears(self)

    def forward(self, hidden_states: Tensor) -> Tensor:
        if self.structure == "linear":
            return hidden_states + self.map(hidden_states)
        return hidden_states + self.up(self.down(hidden_states).relu())


class NonNativeEmbedding(nn.Module):
    """The vocabulary that all acquired languages share: a table of word pieces, projected to the text tower's width.

    Args:
        vocab_size, embedding_size: of the table (M-BERT's is 119 547 x 768).
        width: of the text tower's embedding.

    Shape: ids [N, T] -> [N, T, width].
    """

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


def initialize_linears(module: nn.Module) -> None:
    """PyTorch's own initialisation of linear layers, which the authors' code has, and not the text tower's."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            bound = 1 / math.sqrt(part.in_features)
            init.kaiming_uniform_(part.weight, a=math.sqrt(5))
            init.uniform_(part.bias, -bound, bound)


class RowsByLanguage:
    """Which rows of a batch are in which language; `None` stands for the native one.

    Args:
        languages: one for each row.
    """

    def __init__(self, languages: Sequence[str | None]) -> None:
        self.count = len(languages)
        self.groups: dict[str | None, list[int]] = {}
        for row, language in enumerate(languages):
            self.groups.setdefault(language, []).append(row)
        self._positions: dict[torch.device, tuple[list[Tensor], Tensor]] = {}

    @classmethod
    def all_in(cls, language: str | None, count: int) -> "RowsByLanguage":
        rows = cls([language])
        rows.count = count  # which may be that of a graph for any batch
        return rows

    @property
    def only(self) -> bool:
        """Whether all rows are in one language."""
        return len(self.groups) == 1

    def positions(self, device: torch.device) -> tuple[list[Tensor], Tensor]:
        """The rows of each group, and where each row stands when the groups are put one after another."""
        if device not in self._positions:
            groups = [torch.tensor(rows, device=device) for rows in self.groups.values()]
            self._positions[device] = groups, torch.argsort(torch.cat(groups))
        return self._positions[device]

    def map(self, function: Callable[[str | None, Tensor], Tensor], rows: Tensor) -> Tensor:
        """`function(language, its rows)` for every language, put back in order. [N, …] -> [N, …]"""
        if rows.shape[0] != self.count:
            raise ValueError(f"{self.count} rows were given a language, and the batch has {rows.shape[0]}")
        if self.only:
            return function(next(iter(self.groups)), rows)
        groups, places = self.positions(rows.device)
        parts = [function(language, rows[group]) for language, group in zip(self.groups, groups, strict=True)]
        return torch.cat(parts)[places]

    def by_vocabulary(self) -> "RowsByLanguage":
        """The rows as far as they have different vocabularies."""
        return self

    def ids_of(self, language: str | None, input_ids: Tensor, rows: Tensor) -> Tensor:
        """The token ids of a language's rows."""
        return input_ids[rows]


class MasksByLanguage:
    """As `RowsByLanguage`, for a graph that takes the languages as an input: every language's function is given all
    rows, and each row keeps what its own language's made of it.

    Args:
        languages: by their ids.
        ids ([N]): of the rows; not checked.
    """

    def __init__(self, languages: Sequence[str | None], ids: Tensor) -> None:
        self.languages, self.ids = list(languages), ids

    def map(self, function: Callable[[str | None, Tensor], Tensor], rows: Tensor) -> Tensor:
        """As `RowsByLanguage.map`."""
        found = function(self.languages[0], rows)
        for language in self.languages[1:]:
            is_mine = self._is_in(language).reshape(-1, *[1] * (found.dim() - 1))
            found = torch.where(is_mine, function(language, rows), found)
        return found

    def by_vocabulary(self) -> "MasksByLanguage":
        """All acquired languages have one vocabulary."""
        return MasksByLanguage(self.languages[:2], self.ids.clamp(max=1))

    def ids_of(self, language: str | None, input_ids: Tensor, rows: Tensor) -> Tensor:
        """The token ids of a language's rows; elsewhere 0, which is in every vocabulary."""
        return torch.where(self._is_in(language)[:, None], input_ids, 0)

    def _is_in(self, language: str | None) -> Tensor:
        return self.ids == self.languages.index(language)


BatchLanguages = RowsByLanguage | MasksByLanguage


class WrappedLayer(nn.Module):
    """A frozen layer with something new around it."""

    base_layer: nn.Module

    def __getattr__(self, name: str) -> Any:
        """What others look up on a layer, such as an embedding's table, they find on the wrapped one."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "base_layer":  # not there yet while a copy is being made
                raise
            return getattr(self.base_layer, name)


class AcquiredBlock(WrappedLayer):
    """A frozen block, followed by the acquirer of each row's language."""

    def __init__(self, base_layer: nn.Module) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.mla_acquirers = nn.ModuleDict()
        self.rows: BatchLanguages | None = None

    def rows_of(self, count: int) -> BatchLanguages | None:
        """The languages of a batch of `count` rows; `None` when all are native."""
        return self.rows

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        hidden_states = self.base_layer(hidden_states, *args, **kwargs)
        rows = self.rows_of(hidden_states.shape[0])
        return hidden_states if rows is None else rows.map(self._acquire, hidden_states)

    def _acquire(self, language: str | None, hidden_states: Tensor) -> Tensor:
        return hidden_states if language is None else self.mla_acquirers[language](hidden_states)


class AcquiredEmbedding(WrappedLayer):
    """A frozen text tower's embedding, with a second vocabulary for the rows of acquired languages.

    Non-native rows go through the tower's own position embedding. Where the tower pools the state at its end-of-text
    token, it is shown one at the place of each row's first [SEP]: `watch` the tower for that.

    Args:
        base_layer: takes `input_ids` or `inputs_embeds`, as those of transformers do.
        non_native: the second vocabulary.
        sep_token_id: of the second vocabulary.
        end_token_id: the id at which the tower pools; `None` when it does not pool at a token.
    """

    def __init__(
        self, base_layer: nn.Module, non_native: NonNativeEmbedding, sep_token_id: int, end_token_id: int | None
    ) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.mla_embedding = non_native
        self.sep_token_id, self.end_token_id = sep_token_id, end_token_id
        self.rows: BatchLanguages | None = None
        self._unmarked_ids: Tensor | None = None

    def rows_of(self, count: int) -> BatchLanguages | None:
        """As in `AcquiredBlock`."""
        return self.rows

    def watch(self, tower: nn.Module) -> Any:
        """From now on sees the ids that `tower` is given before it does; returns the handle that ends it."""
        return tower.register_forward_pre_hook(self._mark_ends, with_kwargs=True)

    def _mark_ends(self, tower: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        input_ids = args[0] if args else kwargs.get("input_ids")
        rows = None if input_ids is None else self.rows_of(input_ids.shape[0])
        self._unmarked_ids = None  # of a call that failed
        if rows is None or self.end_token_id is None:
            return None
        marked = rows.by_vocabulary().map(
            lambda language, ids: ids if language is None else self._marked(ids), input_ids
        )
        self._unmarked_ids = input_ids
        return ((marked, *args[1:]), kwargs) if args else (args, kwargs | {"input_ids": marked})

    def _marked(self, input_ids: Tensor) -> Tensor:
        """Ids of which the first end-of-text token, and the greatest id, stands where the first [SEP] does."""
        is_sep = input_ids == self.sep_token_id  # [N, T]
        if not is_exporting() and not is_sep.any(-1).all():
            raise ValueError(
                f"a text has no [SEP] (id {self.sep_token_id}), whose state is pooled; the tokenizer must end texts so"
            )
        end = is_sep.int().argmax(-1, keepdim=True)
        filler = 0 if self.end_token_id else 1
        return torch.full_like(input_ids, filler).scatter(1, end, self.end_token_id)

    def forward(self, input_ids: Tensor | None = None, *args: Any, **kwargs: Any) -> Tensor:
        ids, self._unmarked_ids = input_ids if self._unmarked_ids is None else self._unmarked_ids, None
        rows = None if ids is None else self.rows_of(ids.shape[0])
        if ids is None or rows is None:
            return self.base_layer(input_ids, *args, **kwargs)
        if args:
            raise TypeError("beside input_ids, the arguments of an embedding are given by name")

        vocabularies, count = rows.by_vocabulary(), ids.shape[0]

        def embed(language: str | None, chosen: Tensor) -> Tensor:
            # Of positions or segments, one row for all or one for each.
            others = {
                k: v[chosen] if isinstance(v, Tensor) and v.shape[0] == count > 1 else v for k, v in kwargs.items()
            }
            own = vocabularies.ids_of(language, ids, chosen)
            if language is None:
                return self.base_layer(input_ids=own, **others)
            return self.base_layer(**others | {"input_ids": None, "inputs_embeds": self.embed_non_native(own)})

        return vocabularies.map(embed, torch.arange(count, device=ids.device))

    def embed_non_native(self, input_ids: Tensor) -> Tensor:
        """The word pieces of acquired languages, without positions. [N, T] -> [N, T, width]"""
        return self.mla_embedding(input_ids)


@contextmanager
def languages_of_rows(model: nn.Module, rows: BatchLanguages | None) -> Iterator[None]:
    """Within, every wrapped layer of `model` takes the rows of a batch to be in these languages."""
    layers = [module for module in model.modules() if isinstance(module, AcquiredBlock | AcquiredEmbedding)]
    for layer in layers:
        layer.rows = rows
    try:
        yield
    finally:
        for layer in layers:
            layer.rows = None


def end_token_id(config: PreTrainedConfig) -> int | None:
    """The id at which the text tower of a dual encoder's configuration pools, if it does."""
    return config.text_config.eos_token_id if text_tower(config.model_type).pooling == "end" else None


def plain_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """The weights of a model with wrapped layers, as it has them without acquirers."""
    return {_plain_name(name): value for name, value in model.state_dict().items() if ".mla_" not in name}


def load_plain_state_dict(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Gives a model with wrapped layers the weights of one without.

    Raises:
        ValueError: when they are those of another model.
    """
    own = {_plain_name(name): name for name in model.state_dict() if ".mla_" not in name}
    missing, unexpected = model.load_state_dict({own.get(k, k): value for k, value in weights.items()}, strict=False)
    wrong = [name for name in missing if ".mla_" not in name] + unexpected
    if wrong:
        raise ValueError(f"these are not the weights of a {type(model).__name__} of this configuration: {wrong[:5]}")


def _plain_name(name: str) -> str:
    """A wrapped layer's name without the wrapping."""
    return re.sub(r"\.base_layer\b", "", name)

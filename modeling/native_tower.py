"""The text tower of a dual encoder that acquires languages: its parts, and what it looks for in the token ids."""

from dataclasses import dataclass
from inspect import signature

from torch import nn
from transformers import PreTrainedConfig

from ..configuration.errors import ModelKindError, did_you_mean
from ..configuration.text_towers import TextTower


@dataclass(frozen=True)
class TowerParts:
    """The text tower of a dual encoder, and its parts that MLA wraps.

    Attributes:
        tower: the module that is given the token ids.
        embeddings: its embedding, or its table alone.
        blocks: its blocks, a list.
        embedding_width: width of the rows of its table.
        width: width of its states.
    """

    tower: nn.Module
    embeddings: nn.Module
    blocks: nn.ModuleList
    embedding_width: int
    width: int


def tower_parts(model: nn.Module, where: TextTower) -> TowerParts:
    """Finds the text tower of a dual encoder.

    Args:
        model: the dual encoder; its layers may be wrapped already.
        where: where it has its parts.

    Raises:
        ModelKindError: if the model is no dual encoder, or lacks a part.
    """
    needed = ("get_text_features", "get_image_features")
    if missing := [name for name in needed if not hasattr(model, name)]:
        raise ModelKindError(f"{type(model).__name__} is no dual encoder: it lacks {' and '.join(missing)}")
    if not (hasattr(model, "logit_scale") or hasattr(model, "temperature")):
        raise ModelKindError(f"{type(model).__name__} has no temperature: neither logit_scale nor temperature")
    tower = _module(model, where.path, "path")
    embeddings, blocks = (_module(tower, getattr(where, name), name) for name in ("embeddings", "blocks"))
    if not isinstance(blocks, nn.ModuleList):
        raise ModelKindError(
            f"{where.path}.{where.blocks} of {type(model).__name__} is a {type(blocks).__name__}, and not a list of "
            "blocks (nn.ModuleList)"
        )
    plain = getattr(embeddings, "base_layer", embeddings)
    if not isinstance(plain, nn.Embedding) and "inputs_embeds" not in signature(plain.forward).parameters:
        raise ModelKindError(
            f"{where.path}.{where.embeddings} of {type(model).__name__} is neither a table (nn.Embedding) nor takes "
            "inputs_embeds instead of token ids"
        )
    rows = _table(plain).embedding_dim
    width = getattr(getattr(model.config, "text_config", None), "hidden_size", None) or rows
    return TowerParts(tower, embeddings, blocks, rows, width)


def _module(parent: nn.Module, path: str, key: str) -> nn.Module:
    """Returns the module at a path below another."""
    found = parent
    for name in path.split("."):
        children = dict(found.named_children())
        if name not in children:
            raise ModelKindError(
                f"{type(parent).__name__} has no module {path!r}, which text_tower states as {key}: "
                f"{type(found).__name__} has {', '.join(children) or 'no modules'}{did_you_mean(name, children)}"
            )
        found = children[name]
    return found


def _table(embeddings: nn.Module) -> nn.Embedding:
    """Returns the table of an embedding: by its usual names, else the one with the most rows."""
    tables = {name: part for name, part in embeddings.named_modules() if isinstance(part, nn.Embedding)}
    usual = [tables[name] for name in ("", "word_embeddings", "token_embedding", "tok_embeddings") if name in tables]
    if not tables:
        raise ModelKindError(f"{type(embeddings).__name__} has no table (nn.Embedding)")
    return usual[0] if usual else max(tables.values(), key=lambda table: table.num_embeddings)


@dataclass(frozen=True)
class NativeMarks:
    """Ids of the native vocabulary that a tower itself looks for in the token ids.

    Attributes:
        end: the end-of-text token, at which the tower pools, or `None` if it does not pool at a token.
        padding: the padding token, if the tower may find the padding by its id, or `None`.
    """

    end: int | None = None
    padding: int | None = None

    @property
    def filler(self) -> int:
        """Id of all other tokens. It is small, because CLIP with `eos_token_id=2` pools at the greatest id."""
        return next(number for number in range(3) if number not in (self.end, self.padding))

    def __bool__(self) -> bool:
        return self.end is not None or self.padding is not None


def native_marks(config: PreTrainedConfig, tower: nn.Module, where: TextTower) -> NativeMarks:
    """Returns what a text tower looks for in the token ids.

    Args:
        config: configuration of the dual encoder.
        tower: the text tower, which may have a configuration of its own.
        where: what is known of it.

    Raises:
        ModelKindError: if a tower is declared to pool at its end-of-text token, and no configuration has its id.
    """
    configs = [getattr(tower, "config", None), getattr(config, "text_config", None), config]

    def stated(name: str) -> int | None:
        return next((value for each in configs if (value := getattr(each, name, None)) is not None), None)

    if not where.is_declared:
        return NativeMarks(config.text_config.eos_token_id if where.pooling == "end" else None)
    end = stated("eos_token_id") if where.pooling == "end" else None
    if where.pooling == "end" and end is None:
        raise ModelKindError(
            "text_tower: pooling='end' is at the end-of-text token, but no configuration of the model has its "
            "eos_token_id"
        )
    padding = stated("pad_token_id")
    return NativeMarks(end, None if padding == end else padding)

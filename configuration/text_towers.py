"""Where dual encoders have the embedding and the blocks of their text tower, and which state they pool.

MLA wraps these parts (`modeling.acquirer`). Which they are follows from the configuration of the dual encoder, or is
declared: code that comes with a model may call them anything.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal, get_args

from transformers import PreTrainedConfig

from ..utils.errors import ModelKindError, did_you_mean

TowerPooling = Literal["end", "first", "last", "mean"]
_NAME = re.compile(r"\w+(\.\w+)*")


@dataclass(frozen=True)
class TextTower:
    """Where a dual encoder has the embedding and the blocks of its text tower, and which state it pools.

    Attributes:
        path: name of the tower, the module that is given the token ids, in the model.
        embeddings, blocks: names below the tower; `blocks` is a list of modules.
        pooling: which state the tower pools: `end`, at the end-of-text token (CLIP); `first`, at [CLS] (BERT);
            `last`, at the last position of a text that is padded to the full length (SigLIP); `mean`, the mean over
            the tokens.
        is_declared: whether a user declared it. Such a tower may find the padding by its id, instead of taking a mask.
    """

    path: str
    embeddings: str
    blocks: str
    pooling: TowerPooling
    is_declared: bool = False

    @property
    def target_modules(self) -> str:
        """Pattern that matches the names of the embedding and of the blocks in the model."""
        return rf"(.*\.)?{self.path}\.({self.embeddings}|{self.blocks}\.\d+)"


def _bert(pooling: TowerPooling = "first") -> TextTower:
    return TextTower("text_model", "embeddings", "encoder.layer", pooling)


def _clip(pooling: TowerPooling) -> TextTower:
    return TextTower("text_model", "embeddings", "encoder.layers", pooling)


# Dual encoders that can acquire languages, by `model_type`; a line here adds another.
TEXT_TOWERS = {
    "clip": _clip("end"),
    "siglip": _clip("last"),
    "align": _bert(),
    "mural": _bert(),
    "etcl": _bert(),
    "metaclip_2": _clip("end"),
    "siglip2": _clip("last"),
    "altclip": TextTower("text_model", "roberta.embeddings", "roberta.encoder.layers", "first"),
    "chinese_clip": _bert(),
    "vision-text-dual-encoder": _bert(),
}
# Those whose text tower is any text encoder, and where such an encoder has its parts, by its own `model_type`. The
# pooling is that of the encoder's pooling layer.
_OF_ANY_ENCODER = ("mural", "etcl", "vision-text-dual-encoder")
_ENCODERS = {
    **dict.fromkeys(["bert", "electra", "ernie", "megatron-bert", "mpnet"], _bert()),
    **dict.fromkeys(["roberta", "xlm-roberta", "xlm-roberta-xl", "camembert"], _bert()),
    **dict.fromkeys(["roberta-prelayernorm", "data2vec-text"], _bert()),
    **dict.fromkeys(["align_text_model", "chinese_clip_text_model"], _bert()),
    **dict.fromkeys(["clip_text_model", "metaclip_2_text_model"], _clip("end")),
    **dict.fromkeys(["siglip_text_model", "siglip2_text_model"], _clip("last")),
    "altclip_text_model": TEXT_TOWERS["altclip"],
}
# How the configuration of MURAL and ETCL calls the poolings.
_STATE_POOLED: dict[str, TowerPooling] = {"cls": "first", "mean": "mean", "eos": "end"}


def text_tower(config: PreTrainedConfig | None, declared: Mapping[str, str] | None = None) -> TextTower:
    """Returns the text tower of a dual encoder.

    Args:
        config: its configuration, or `None` if it has none.
        declared: `path`, `embeddings`, `blocks` and `pooling` of its text tower, as in `TextTower`, for a kind that is
            not among `TEXT_TOWERS`.

    Raises:
        ModelKindError: if the kind is not among `TEXT_TOWERS` and nothing is declared, or what is declared is
            incomplete.
    """
    if declared is not None:
        return declared_text_tower(declared)
    kind = getattr(config, "model_type", None)
    if config is None or kind not in TEXT_TOWERS:
        raise ModelKindError(
            f"MLA does not support {kind!r} models by itself; it supports {', '.join(TEXT_TOWERS)}. Of another dual "
            "encoder, `text_tower` says where it has its text tower (path, embeddings, blocks, pooling)"
        )
    if kind not in _OF_ANY_ENCODER:
        return TEXT_TOWERS[kind]
    encoder, is_own = config.text_config.model_type, kind != "vision-text-dual-encoder"
    if encoder not in _ENCODERS and not is_own:
        raise ModelKindError(
            f"MLA does not support {kind!r} models with a {encoder!r} text encoder by itself; it supports "
            f"{', '.join(_ENCODERS)}. Of another one, `text_tower` says where it has its parts (path, embeddings, "
            "blocks, pooling)"
        )
    found = _ENCODERS.get(encoder, TEXT_TOWERS[kind])
    pooling = _STATE_POOLED.get(getattr(config, "text_pooling", "cls"), found.pooling) if is_own else found.pooling
    return TextTower(found.path, found.embeddings, found.blocks, pooling)


def declared_text_tower(declared: Mapping[str, str]) -> TextTower:
    """Returns the text tower that a user declares.

    Raises:
        ModelKindError: if a key is missing or unknown, or a value is no name or no pooling.
    """
    keys = [field.name for field in fields(TextTower) if field.name != "is_declared"]
    if not isinstance(declared, Mapping):
        raise ModelKindError(f"text_tower={declared!r} must be a dictionary with the keys {', '.join(keys)}")
    if unknown := [key for key in declared if key not in keys]:
        raise ModelKindError(f"text_tower has no key {unknown[0]!r}{did_you_mean(str(unknown[0]), keys)}")
    if missing := [key for key in keys if key not in declared]:
        raise ModelKindError(f"text_tower lacks {', '.join(missing)}; it takes {', '.join(keys)}")
    for key in keys[:-1]:
        if not isinstance(declared[key], str) or not _NAME.fullmatch(declared[key]):
            raise ModelKindError(f"text_tower: {key}={declared[key]!r} is not the name of a module, as in 'a.b'")
    if declared["pooling"] not in get_args(TowerPooling):
        poolings = ", ".join(get_args(TowerPooling))
        raise ModelKindError(f"text_tower: pooling={declared['pooling']!r} is none of {poolings}")
    return TextTower(**declared, is_declared=True)  # type: ignore[arg-type]

"""Where a dual encoder's text tower keeps its embedding and its blocks, and which state it pools.

MLA wraps these parts (`modeling.acquirer`), which it finds from the configuration of the dual encoder.
"""

from dataclasses import dataclass
from typing import Literal

from transformers import PreTrainedConfig

from ..utils.errors import ModelKindError

TowerPooling = Literal["end", "first", "last", "mean"]

# Text encoders that count positions from the padding token's id plus one, as fairseq does.
_POSITIONS_AFTER_PADDING = (
    *("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "roberta-prelayernorm", "data2vec-text", "mpnet"),
    "altclip_text_model",
)


@dataclass(frozen=True)
class TextTower:
    """The text tower of a dual encoder: its path in the model, and the paths of its embedding and its list of blocks
    in the tower.

    It pools the state at the end-of-text token (`end`, CLIP), at [CLS] (`first`, BERT) or at the last position of a
    text that is padded to the full length (`last`, SigLIP), or the mean over the tokens.
    """

    path: str
    embeddings: str
    blocks: str
    pooling: TowerPooling

    @property
    def target_modules(self) -> str:
        """Pattern that matches the names of the model's embedding and blocks."""
        return rf"(.*\.)?{self.path}\.({self.embeddings}|{self.blocks}\.\d+)"


def _clip(pooling: TowerPooling) -> TextTower:
    return TextTower("text_model", "embeddings", "encoder.layers", pooling)


_BERT = TextTower("text_model", "embeddings", "encoder.layer", "first")

# Dual encoders that can acquire languages, by `model_type`; add one by adding a line.
TEXT_TOWERS = {
    "clip": _clip("end"),
    "siglip": _clip("last"),
    "align": _BERT,
    "mural": _BERT,
    "etcl": _BERT,
    "metaclip_2": _clip("end"),
    "siglip2": _clip("last"),
    "altclip": TextTower("text_model", "roberta.embeddings", "roberta.encoder.layers", "first"),
    "chinese_clip": _BERT,
    "vision-text-dual-encoder": _BERT,
}
# Text encoders by their own `model_type`, for dual encoders that accept any of them.
_ENCODERS = {
    **dict.fromkeys(["bert", "electra", "ernie", "megatron-bert", "mpnet"], _BERT),
    **dict.fromkeys(["roberta", "xlm-roberta", "xlm-roberta-xl", "camembert"], _BERT),
    **dict.fromkeys(["roberta-prelayernorm", "data2vec-text"], _BERT),
    **dict.fromkeys(["align_text_model", "chinese_clip_text_model"], _BERT),
    **dict.fromkeys(["clip_text_model", "metaclip_2_text_model"], _clip("end")),
    **dict.fromkeys(["siglip_text_model", "siglip2_text_model"], _clip("last")),
    "altclip_text_model": TEXT_TOWERS["altclip"],
}
# MURAL's and ETCL's names for the poolings.
_STATE_POOLED: dict[str, TowerPooling] = {"cls": "first", "mean": "mean", "eos": "end"}


def text_tower(config: PreTrainedConfig | None) -> TextTower:
    """Returns the text tower of a dual encoder with this configuration."""
    kind = getattr(config, "model_type", None)
    if config is None or kind not in TEXT_TOWERS:
        raise ModelKindError(f"MLA does not support {kind!r} models; it supports {', '.join(TEXT_TOWERS)}")
    if kind not in ("mural", "etcl", "vision-text-dual-encoder"):
        return TEXT_TOWERS[kind]
    encoder = config.text_config.model_type
    if kind == "vision-text-dual-encoder":
        if encoder not in _ENCODERS:
            raise ModelKindError(f"MLA does not support a {encoder!r} encoder; it supports {', '.join(_ENCODERS)}")
        return _ENCODERS[encoder]
    found = _ENCODERS.get(encoder, TEXT_TOWERS[kind])
    pooling = _STATE_POOLED.get(getattr(config, "text_pooling", "cls"), found.pooling)
    return TextTower(found.path, found.embeddings, found.blocks, pooling)


def text_positions(text_config: PreTrainedConfig) -> int | None:
    """Returns the number of token positions of a text encoder, or `None` if its configuration does not state it."""
    positions = getattr(text_config, "max_position_embeddings", None)
    if positions is not None and text_config.model_type in _POSITIONS_AFTER_PADDING:
        return positions - text_config.pad_token_id - 1
    return positions

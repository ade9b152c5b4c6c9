"""The pooling and the number of positions of the text towers whose layers MLA wraps (`modeling.acquirer`)."""

from typing import Literal

from transformers import PreTrainedConfig

from ..utils.errors import ModelKindError

# A text tower pools the state at the end-of-text token (`end`, CLIP), at [CLS] (`first`, BERT) or at the last position
# of a text that is padded to the full length (`last`, SigLIP), or the mean over the tokens.
TowerPooling = Literal["end", "first", "last", "mean"]

# Dual encoders that can acquire languages, by `model_type`; the last three accept several text encoders.
_DUAL_ENCODERS: dict[str, TowerPooling] = {
    **dict.fromkeys(["clip", "metaclip_2"], "end"),
    **dict.fromkeys(["siglip", "siglip2"], "last"),
    **dict.fromkeys(["align", "altclip", "chinese_clip", "mural", "etcl", "vision-text-dual-encoder"], "first"),
}
_ENCODERS: dict[str, TowerPooling] = {
    **dict.fromkeys(["clip_text_model", "metaclip_2_text_model"], "end"),
    **dict.fromkeys(["siglip_text_model", "siglip2_text_model"], "last"),
    **dict.fromkeys(["bert", "electra", "ernie", "megatron-bert", "mpnet", "roberta", "xlm-roberta"], "first"),
    **dict.fromkeys(["xlm-roberta-xl", "camembert", "roberta-prelayernorm", "data2vec-text"], "first"),
    **dict.fromkeys(["align_text_model", "altclip_text_model", "chinese_clip_text_model"], "first"),
}
# MURAL's and ETCL's names for the poolings.
_STATE_POOLED: dict[str, TowerPooling] = {"cls": "first", "mean": "mean", "eos": "end"}
# Text encoders that count positions from the padding token's id plus one, as fairseq does.
_POSITIONS_AFTER_PADDING = (
    *("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "roberta-prelayernorm", "data2vec-text", "mpnet"),
    "altclip_text_model",
)


def tower_pooling(config: PreTrainedConfig | None) -> TowerPooling:
    """Returns the pooling of the text tower of a dual encoder with this configuration, if MLA supports it."""
    kind = getattr(config, "model_type", None)
    encoder = getattr(getattr(config, "text_config", None), "model_type", None)
    name, supported = (encoder, _ENCODERS) if kind == "vision-text-dual-encoder" else (kind, _DUAL_ENCODERS)
    if name not in supported:
        raise ModelKindError(f"MLA does not support {name!r} models; it supports {', '.join(supported)}")
    own = _ENCODERS.get(encoder or "", "first") if kind in ("mural", "etcl") else supported[name]
    return _STATE_POOLED.get(getattr(config, "text_pooling", ""), own)


def text_positions(text_config: PreTrainedConfig) -> int | None:
    """Returns the number of token positions of a text encoder, or `None` if its configuration does not state it."""
    positions = getattr(text_config, "max_position_embeddings", None)
    if positions is not None and text_config.model_type in _POSITIONS_AFTER_PADDING:
        return positions - text_config.pad_token_id - 1
    return positions

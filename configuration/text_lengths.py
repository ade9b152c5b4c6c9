"""How long the texts are that a text encoder reads."""

from transformers import PreTrainedConfig

# Text encoders that count positions from the one after their padding token's id, as fairseq does.
_POSITIONS_AFTER_PADDING = frozenset(
    [
        *("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "roberta-prelayernorm", "data2vec-text", "mpnet"),
        "altclip_text_model",
    ]
)


def text_positions(text_config: PreTrainedConfig) -> int | None:
    """Returns the number of tokens for which a text encoder has positions, or `None` if its configuration does not
    state it."""
    positions = getattr(text_config, "max_position_embeddings", None)
    if positions is not None and text_config.model_type in _POSITIONS_AFTER_PADDING:
        return positions - text_config.pad_token_id - 1
    return positions

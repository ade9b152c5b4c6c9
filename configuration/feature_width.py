"""Widths of the features of towers and of dual encoders."""

from typing import Literal

from transformers import PreTrainedConfig

# How one vector is read from the states of a text encoder, and from those of a vision backbone; see `pool_text` and
# `pool_image`.
TextPooling = Literal["cls", "mean", "eos", "pooler"]
ImagePooling = Literal["pooler", "cls", "mean"]
POOLER: Literal["pooler"] = "pooler"


def text_width(config: PreTrainedConfig, pooling: str = "cls") -> int:
    """Returns the width of the pooled features of a text encoder.

    Args:
        config: configuration of the encoder.
        pooling: how a text is pooled; SigLIP's own pooling changes the width.

    Raises:
        ValueError: if the configuration does not state it.
    """
    names = ("projection_size",) if pooling == POOLER else ()
    for name in (*names, "project_dim", "hidden_size"):  # AltCLIP's encoder projects its states to `project_dim`
        width = getattr(config, name, None)
        if isinstance(width, int):
            return width
    raise ValueError(f"cannot tell the feature width of text model {config.model_type!r}: it has no hidden_size")


def image_width(config: PreTrainedConfig) -> int:
    """Returns the width of the pooled features of a vision backbone.

    Raises:
        ValueError: if the configuration does not state it.
    """
    if config.model_type == "align_vision_model":
        # Imported here, because it imports all of PyTorch.
        from transformers.models.align.modeling_align import round_filters

        # EfficientNet: the width of the last stage, because there is no head convolution.
        return round_filters(config, config.out_channels[-1])
    for name in ("hidden_dim", "hidden_size", "hidden_sizes"):
        width = getattr(config, name, None)
        if width is not None:
            return width if isinstance(width, int) else width[-1]
    raise ValueError(f"cannot tell the feature width of vision model {config.model_type!r}: it has no hidden_size")


def feature_width(config: PreTrainedConfig) -> int:
    """Returns the width of the features of a dual encoder; SigLIP's are as wide as those of its image tower.

    Raises:
        ValueError: if the configuration does not state it.
    """
    width = getattr(config, "projection_dim", None)
    if width is None and not hasattr(config, "vision_config"):
        raise ValueError(
            f"cannot tell the feature width of dual encoder {config.model_type!r}: it has neither projection_dim nor "
            "vision_config"
        )
    return width or image_width(config.vision_config)


def check_projection_dim(config: PreTrainedConfig, given: object, hint: str = "") -> None:
    """Checks a stated width of the shared space against the width that follows from the towers.

    Args:
        config: configuration of a dual encoder.
        given: the width that a file or a caller states, or `None`.
        hint: what to do about it, for the error.

    Raises:
        ValueError: if the widths differ.
    """
    if given not in (None, config.projection_dim):
        raise ValueError(f"projection_dim={given}, but the towers' shared space is {config.projection_dim} wide{hint}")

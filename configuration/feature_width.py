"""How wide the features of an image, and of a dual encoder, are."""

from transformers import PreTrainedConfig


def image_width(config: PreTrainedConfig) -> int:
    """The width of a vision backbone's pooled features.

    Raises:
        ValueError: when the configuration does not say.
    """
    if config.model_type == "align_vision_model":
        # Only here, as it brings all of PyTorch with it.
        from transformers.models.align.modeling_align import round_filters

        # EfficientNet: the last stage's width, as there is no head convolution.
        return round_filters(config, config.out_channels[-1])
    for name in ("hidden_dim", "hidden_size", "hidden_sizes"):
        width = getattr(config, name, None)
        if width is not None:
            return width if isinstance(width, int) else width[-1]
    raise ValueError(f"cannot tell the feature width of vision model {config.model_type!r}: it has no hidden_size")


def feature_width(config: PreTrainedConfig) -> int:
    """The width of a dual encoder's features: SigLIP's are as wide as its image tower."""
    return getattr(config, "projection_dim", None) or image_width(config.vision_config)


def check_projection_dim(config: PreTrainedConfig, given: object) -> None:
    """
    Args:
        config: a dual encoder's, whose towers say how wide its shared space is.
        given: what a file or a caller says, if anything.

    Raises:
        ValueError: when that is something else.
    """
    if given not in (None, config.projection_dim):
        raise ValueError(f"projection_dim={given}, but the towers' shared space is {config.projection_dim} wide")

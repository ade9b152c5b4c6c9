"""Pretrained towers: a text encoder or a vision backbone from a folder, from the Hub, or out of another model."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoModel,
    PreTrainedConfig,
    PreTrainedModel,
)

from ..configuration.configuration_two_tower import POOLER, TextPooling, declared_pooling
from ..utils.errors import ModelKindError
from ..utils.pretrained import explained, load_config, load_model, located, without_report
from .towers import CLASSES, build_tower, tower_class

Source: TypeAlias = PreTrainedModel | str | Path

# What a dual encoder calls its towers, and their configurations.
_TEXT, _TEXT_CONFIG = "text_model", "text_config"
_IMAGE, _IMAGE_CONFIG = "vision_model", "vision_config"
_PIXELS = "pixel_values"
# What every table of weights that transformers reports has in it. Missing weights are an error here, or not needed.
_REPORT = "LOAD REPORT"


def text_tower_of(source: Source, pooling: str = "cls", **loading: Any) -> PreTrainedModel:
    """Returns a pretrained text encoder.

    Args:
        source: a folder or a Hub id, or a model: a text encoder, or a dual encoder that has one.
        pooling: how its texts will be pooled.
        loading: arguments of `from_pretrained`, such as `revision`.

    Raises:
        ModelFolderError: if there is no such folder or repository, or it lacks weights of the encoder.
        ModelKindError: if it has no text encoder: a decoder, a vision model, or one without the pooling.
    """
    if isinstance(source, PreTrainedModel):
        tower = _inside(source, _TEXT) if _is_dual_encoder(source.config) else source
    elif _is_dual_encoder(load_config(source, **loading)):
        tower = _loaded_from_dual_encoder(source, _TEXT, **loading)
    else:
        with without_report(_REPORT):
            return load_text_encoder(source, pooling=pooling, **loading)
    check_text_encoder(tower.config)
    check_pooling(tower, pooling)
    return tower


def image_tower_of(source: Source, **loading: Any) -> PreTrainedModel:
    """Returns a pretrained vision backbone.

    Args:
        source: a folder or a Hub id, or a model: a vision backbone, or a dual encoder that has one.
        loading: arguments of `from_pretrained`, such as `revision`.

    Raises:
        ModelFolderError: if there is no such folder or repository, or it lacks weights of the backbone.
        ModelKindError: if it has no vision backbone.
    """
    if isinstance(source, PreTrainedModel):
        tower = _inside(source, _IMAGE) if _is_dual_encoder(source.config) else source
    else:
        config = load_config(source, **loading)
        if _is_dual_encoder(config):
            tower = _loaded_from_dual_encoder(source, _IMAGE, **loading)
        else:
            untrained: set[str] = set()
            with without_report(_REPORT):
                tower = load_model(tower_class(config), source, part=without_pooler, untrained=untrained, **loading)
            if untrained:  # a pooling layer that the files lack, such as that of a ViT for classification
                tower.pooler = None
    _check_reads_images(tower, tower.config.model_type)
    return tower


def config_of_towers(
    config_class: Any,
    image: Source,
    text: Source,
    *,
    projection_dim: int | None = None,
    text_pooling: TextPooling | None = None,
    text_prompt: str | None = None,
    freeze: Collection[str] = (),
    loading: dict[str, Any] | None = None,
    **options: Any,
) -> PreTrainedConfig:
    """Returns the configuration of the model that `from_towers` makes, without loading weights of folders.

    Only weights show whether a ViT has a trained pooling layer; without one, `from_towers` sets `image_pooling` to
    `cls`.

    Args:
        config_class: `MuralConfig` or `EtclConfig`.
        image, text: the towers; these and all other arguments and errors are those of `TwoTowerModel.from_towers`.
    """
    where = loading or {}
    pooling = chosen_pooling(text, text_pooling, **where)
    if projection_dim is not None:
        options = {"projection_dim": projection_dim, "image_head": True} | options
    if isinstance(image, PreTrainedModel) and not has_own_pooling(image):
        options = {"image_pooling": "cls"} | options
    return config_class(
        text_config=text_tower_config(text, pooling, **where),
        vision_config=image_tower_config(image, **where),
        text_pooling=pooling,
        text_prompt=text_prompt or "",
        freeze=freeze if isinstance(freeze, str) else list(freeze),  # the configuration refuses a text
        **options,
    )


def text_tower_config(source: Source, pooling: str = "cls", **loading: Any) -> PreTrainedConfig:
    """Returns the configuration of a pretrained text encoder, of which no weights are loaded.

    Arguments and errors are those of `text_tower_of`, but for weights.
    """
    if isinstance(source, PreTrainedModel):
        return text_tower_of(source, pooling).config
    config = _tower_config(load_config(source, **loading), _TEXT_CONFIG)
    check_text_encoder(config)
    if pooling == POOLER:
        with torch.device("meta"):
            check_pooling(build_tower(config, pooler=True), pooling)
    return config


def image_tower_config(source: Source, **loading: Any) -> PreTrainedConfig:
    """Returns the configuration of a pretrained vision backbone, of which no weights are loaded.

    Arguments and errors are those of `image_tower_of`, but for weights.
    """
    if isinstance(source, PreTrainedModel):
        return image_tower_of(source).config
    config = _tower_config(load_config(source, **loading), _IMAGE_CONFIG)
    if (chosen := tower_class(config)) is not AutoModel:
        _check_reads_images(chosen, config.model_type)
    return config


def has_own_pooling(tower: PreTrainedModel) -> bool:
    """Returns whether a vision backbone can pool an image itself: a ViT, whose pooling layer is optional, may not."""
    return getattr(tower, "pooler", True) is not None


def load_tower(tower: PreTrainedModel, source: PreTrainedModel) -> None:
    """Copies the weights of a pretrained tower into one that was built without those that are not used, such as a
    pooling layer."""
    own = tower.state_dict()
    tower.load_state_dict({name: value for name, value in source.state_dict().items() if name in own})


def _check_reads_images(tower: Any, kind: str) -> None:
    if getattr(tower, "main_input_name", "") != _PIXELS:
        raise ModelKindError(
            f"a {kind!r} model reads no images: image= needs a vision backbone, such as a ViT, a DINOv2 or the image "
            "tower of a CLIP"
        )


def _tower_config(config: PreTrainedConfig, name: str) -> PreTrainedConfig:
    return getattr(getattr(config, "base_config", config), name) if _is_dual_encoder(config) else config


def _is_dual_encoder(config: PreTrainedConfig) -> bool:
    # That of an MLA model has another one inside.
    return hasattr(getattr(config, "base_config", config), _TEXT_CONFIG) and hasattr(
        getattr(config, "base_config", config), _IMAGE_CONFIG
    )


def _inside(model: PreTrainedModel, tower: str) -> PreTrainedModel:
    return getattr(getattr(model, "native_model", model), tower)


def _loaded_from_dual_encoder(source: str | Path, tower: str, **loading: Any) -> PreTrainedModel:
    with without_report(_REPORT):
        model = load_model(AutoModel, source, part=lambda whole: without_pooler(_inside(whole, tower)), **loading)
    return _inside(model, tower)


# ---- Text encoders ----
# Text encoders of any kind: which models are one, which pooling they have, and how they are loaded from what
# others have published, a folder, a repository of the Hub, or a model.


def check_text_encoder(config: PreTrainedConfig) -> None:
    """Checks that a configuration is that of a text encoder, in which every token sees the whole text.

    Raises:
        ModelKindError: if it is of a model without a vocabulary, of a decoder, or of an encoder-decoder whose encoder
            transformers has no class for.
    """
    kind = config.model_type
    if not isinstance(getattr(config, "vocab_size", None), int):
        raise ModelKindError(f"a {kind!r} model is no text encoder, which BERT, XLM-R, E5 and the encoder of mT5 are")
    if kind in CLASSES:
        return
    if config.is_encoder_decoder:
        classes = ", ".join(sorted(name for name in CLASSES if "_" not in name))
        raise ModelKindError(
            f"a {kind!r} model is an encoder-decoder, whose encoder alone transformers has no class for; it has one "
            f"for {classes}"
        )
    is_causal_only = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and type(config) not in MODEL_FOR_MASKED_LM_MAPPING
    sees_ahead = getattr(config, "use_bidirectional_attention", None)
    if getattr(config, "is_decoder", False) or (is_causal_only and not sees_ahead):
        raise ModelKindError(
            f"a {kind!r} model is a decoder, in which a token sees only the text before it: choose a text encoder, "
            "such as BERT, XLM-R, E5 or the encoder of mT5"
        )


def check_pooling(tower: PreTrainedModel, pooling: str) -> None:
    """Checks that a text encoder has the pooling that was asked for.

    Raises:
        ModelKindError: if its own pooling layer was asked for, and there is none.
    """
    kind = tower.config.model_type
    has_pooler = kind.endswith("_text_model") or getattr(tower, "pooler", None) is not None
    if pooling == POOLER and not has_pooler:
        raise ModelKindError(
            f"this {kind!r} text encoder has no pooling layer: choose text_pooling='mean', 'cls' or 'eos'"
        )


def chosen_pooling(
    source: str | Path | PreTrainedModel, given: TextPooling | None = None, **loading: Any
) -> TextPooling:
    """Returns how the texts of an encoder are pooled: as was asked for, else as its folder states, else at the first
    token.

    Args:
        source: a folder, a repository of the Hub, or a model.
        given: the pooling that was asked for.
        loading: arguments of `from_pretrained`.

    Raises:
        ModelFolderError: if there is no such folder or repository, or the file that states it is damaged.
        ModelKindError: if the folder states a pooling that babelens does not have.
    """
    if given is not None or isinstance(source, PreTrainedModel):
        return given or "cls"
    source, loading = str(source), located(source, **loading)
    with explained(source, loading):
        return declared_pooling(source, **loading) or "cls"


def load_text_encoder(source: str | Path | PreTrainedModel, *, pooling: str, **loading: Any) -> PreTrainedModel:
    """Loads a text encoder of transformers.

    Args:
        source: a folder, a repository of the Hub, or a model that is loaded already.
        pooling: how its texts will be pooled. Weights of its pooling layer may be missing unless this is `pooler`:
            checkpoints of masked language modeling have none.
        loading: arguments of `from_pretrained`.

    Raises:
        ModelFolderError: if there is no such folder or repository, or one of its files is missing or damaged.
        ModelKindError: if it is no text encoder, or lacks the pooling.
        UntrustedCodeError: if the model needs code that comes with it.
    """
    if isinstance(source, PreTrainedModel):
        check_text_encoder(source.config)
        model = source
    else:
        config = load_config(source, **loading)
        check_text_encoder(config)
        model = load_model(tower_class(config), source, part=None if pooling == POOLER else without_pooler, **loading)
    check_pooling(model, pooling)
    return model


def without_pooler(model: PreTrainedModel) -> nn.Module:
    """Returns the parts of an encoder but its pooling layer, whose weights checkpoints may lack."""
    return nn.ModuleList(module for name, module in model.named_children() if name != "pooler")

"""Pretrained towers: a text encoder or a vision backbone from a folder, from the Hub, or out of another model."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any, TypeAlias

from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_MASKED_LM_MAPPING_NAMES

from ..configuration.errors import ModelFolderError, ModelKindError
from ..configuration.feature_width import POOLER
from .towers import tower_class

Source: TypeAlias = PreTrainedModel | str | Path

# Where a model of several parts has the tower, and what the tower's configuration is called there.
_TEXT = ("text_model", "text_config")
_IMAGE = ("vision_model", "vision_config")
_PIXELS = "pixel_values"


def text_tower_of(source: Source, pooling: str = "cls", **loading: Any) -> PreTrainedModel:
    """Returns a pretrained text encoder.

    Args:
        source: a folder or a Hub id, or a model: a text encoder, or a dual encoder that has one.
        pooling: how its texts will be pooled.
        loading: arguments of `from_pretrained`, such as `revision`.

    Raises:
        ModelFolderError: if the source lacks weights of the encoder.
        ModelKindError: if it has no text encoder: a decoder, a vision model, or one without the pooling.
    """
    tower = _tower(source, _TEXT, pooler=pooling == POOLER, **loading)
    config, name = tower.config, _name(source)
    if getattr(tower, "main_input_name", "") == _PIXELS or not hasattr(config, "vocab_size"):
        raise ModelKindError(
            f"{name} is a {config.model_type!r} model, which reads no texts: text= needs a text encoder"
        )
    generates = config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    reads_ahead = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)
    has_encoder = getattr(config, "is_encoder_decoder", False)
    if generates and not reads_ahead and not has_encoder:
        raise ModelKindError(
            f"{name} is a {config.model_type!r} model, a decoder: its states know only the text before them. "
            "text= needs an encoder, such as an XLM-R, an E5 or the encoder of an mT5"
        )
    if hasattr(tower, "decoder"):
        raise ModelKindError(f"{name} is a {config.model_type!r} model, an encoder with a decoder: name an encoder")
    if pooling == POOLER and getattr(tower, "pooler", None) is None and not config.model_type.endswith("_text_model"):
        raise ModelKindError(
            f"{name} has no pooling of its own (text_pooling='pooler'): choose 'mean', 'cls' or 'eos', whichever it "
            "was trained with"
        )
    return tower


def image_tower_of(source: Source, **loading: Any) -> PreTrainedModel:
    """Returns a pretrained vision backbone.

    Args:
        source: a folder or a Hub id, or a model: a vision backbone, or a dual encoder that has one.
        loading: arguments of `from_pretrained`, such as `revision`.

    Raises:
        ModelFolderError: if the source lacks weights of the backbone.
        ModelKindError: if it has no vision backbone.
    """
    tower = _tower(source, _IMAGE, **loading)
    if getattr(tower, "main_input_name", "") != _PIXELS:
        raise ModelKindError(
            f"{_name(source)} is a {tower.config.model_type!r} model, which reads no images: image= needs a vision "
            "backbone, such as a ViT, a DINOv2 or the image tower of a CLIP"
        )
    return tower


def has_own_pooling(tower: PreTrainedModel) -> bool:
    """Returns whether a vision backbone can pool an image itself: a ViT, whose pooling layer is optional, may not."""
    return getattr(tower, "pooler", True) is not None


def load_tower(tower: PreTrainedModel, source: PreTrainedModel) -> None:
    """Copies the weights of a pretrained tower into one that was built without those that are not used, such as a
    pooling layer."""
    own = tower.state_dict()
    tower.load_state_dict({name: value for name, value in source.state_dict().items() if name in own})


def _tower(source: Source, part: tuple[str, str], pooler: bool = True, **loading: Any) -> PreTrainedModel:
    model = source if isinstance(source, PreTrainedModel) else _loaded(str(source), part, pooler, **loading)
    model = getattr(model, "native_model", model)  # of an MLA model
    inner = getattr(model, part[0], None)
    # Some text encoders have a module of that name inside of them; only a dual encoder has a configuration for it.
    is_composite = hasattr(model.config, part[1]) and isinstance(inner, PreTrainedModel)
    return inner if is_composite else model


def _loaded(source: str, part: tuple[str, str], pooler: bool, **loading: Any) -> PreTrainedModel:
    loading = {"use_safetensors": True} | loading
    config = AutoConfig.from_pretrained(source, **{k: v for k, v in loading.items() if k != "use_safetensors"})
    loader = AutoModel if hasattr(config, part[1]) else tower_class(config)
    if not pooler and "add_pooling_layer" in signature(loader).parameters:  # whose weights the files may lack
        loading["add_pooling_layer"] = False
    with _without_report():
        model, found = loader.from_pretrained(source, **loading, output_loading_info=True)
    missing = sorted(name for name in found["missing_keys"] if ".pooler." not in f".{name}")
    if missing:
        raise ModelFolderError(f"{source} lacks weights of the {config.model_type!r} model: {', '.join(missing[:3])}")
    if found["missing_keys"]:  # a pooling layer that was not trained
        model.pooler = None
    return model


@contextmanager
def _without_report() -> Iterator[None]:
    """Hides transformers' table of weights that are missing, which is an error here, or not needed."""
    report = logging.getLogger("transformers.modeling_utils")
    level = report.level
    report.setLevel(logging.ERROR)
    try:
        yield
    finally:
        report.setLevel(level)


def _name(source: Source) -> str:
    return type(source).__name__ if isinstance(source, PreTrainedModel) else str(source)

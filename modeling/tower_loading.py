"""Pretrained towers: a text encoder or a vision backbone from a folder, from the Hub, or out of another model."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn
from transformers import (
    AutoModel,
    PreTrainedConfig,
    PreTrainedModel,
)

from ..configuration.configuration_two_tower import IMAGE_TEXT, POOLER, DualEncoderConfig, TextPooling, TwoTowerConfig
from ..utils.errors import ModelFolderError, ModelKindError
from ..utils.hub_code import optional_file
from ..utils.pretrained import explained, load_config, load_model, located
from .towers import build_tower, check_pooling, check_text_encoder, tower_class

Source: TypeAlias = PreTrainedModel | str | Path

# What a dual encoder calls its towers, and their configurations.
_TEXT, _TEXT_CONFIG = "text_model", "text_config"
_IMAGE, _IMAGE_CONFIG = "vision_model", "vision_config"
_PIXELS = "pixel_values"


_ALIGN_LABEL_SMOOTHING = 0.1  # of Jia et al. 2021, section 5, and a constant in transformers' AlignModel
# Keys that one kind of model takes over from another.
_SHARED_KEYS = {*TwoTowerConfig.__annotations__, *DualEncoderConfig.__annotations__} - {"sub_configs_defaults"}
_SHARED_KEYS |= {"text_text_temperature", "text_text_margin"}
# What other kinds of models call a weight, and what it is called here: ETCL and ALIGN have one head for texts.
_NAMES = (
    (f"text_heads.{IMAGE_TEXT}", "text_projection"),
    ("text_projection", f"text_heads.{IMAGE_TEXT}"),
    ("temperature", "similarity.temperature"),
)


class MadeOfTowers:
    """How models of two towers are made of trained models; a saved folder holds none of this."""

    @classmethod
    def from_towers(
        cls: Any,
        image: Source,
        text: Source,
        *,
        fresh: Collection[str] = (),
        loading: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Makes a model of two pretrained towers, with new linear layers.

        Args:
            image: folder, Hub id or model of a vision backbone, or of a dual encoder, whose image tower is taken.
            text: the same of a text encoder.
            fresh: the towers ("image", "text") of which only the sizes are kept, and the weights are drawn anew.
            loading: keyword arguments of `from_pretrained` for both towers, such as `trust_remote_code`.
            options: further keys of the configuration. `projection_dim` adds a projection of images; `text_pooling`
                is by default what the folder of the text encoder states, else `cls`.

        Examples:
            >>> model = MuralModel.from_towers(
            ...     "google/efficientnet-b0", "intfloat/multilingual-e5-small", projection_dim=512,
            ...     text_pooling="mean", text_prompt="query: ", freeze=["image", "text"],
            ... )
            >>> processor = MuralProcessor.from_towers(
            ...     "google/efficientnet-b0", "intfloat/multilingual-e5-small", model.config
            ... )
        """
        where = loading or {}
        pooling = chosen_pooling(text, options.pop("text_pooling", None), **where)
        vision_model = image_tower_of(image, **where)
        text_model = text_tower_of(text, pooling, **where)
        config = config_of_towers(cls.config_class, vision_model, text_model, text_pooling=pooling, **options)
        model = cls(config).to(text_model.dtype)
        for name, pretrained in (("text", text_model), ("image", vision_model)):
            if name not in fresh:
                load_tower(model.towers[name], pretrained)
        return model

    @classmethod
    def from_native(cls: Any, native: Source, **options: Any) -> Any:
        """Makes a model with the towers, the temperature and the image-text head of a trained MURAL, ETCL or ALIGN.

        Heads that the native model does not have are drawn as in a new model; `options` are keys of the configuration
        that replace those of the native model. An ALIGN of transformers stays one, with its label smoothing, unless
        `tasks` add a text head for translations (Jain et al. 2021, appendix A.1).

        Examples:
            >>> model = EtclModel.from_native("runs/mural", label_smoothing=0.05)
        """
        if not isinstance(native, PreTrainedModel):
            native = AutoModel.from_pretrained(native)
        config, kind = native.config, native.config.model_type
        if kind not in ("align", "etcl", "mural"):
            raise ModelKindError(f"{cls.__name__} starts from a MURAL, an ETCL or an ALIGN; this model is {kind!r}")
        if kind == "align" and "tasks" in cls.config_class.__annotations__:
            options = {"tasks": [IMAGE_TEXT], "label_smoothing": _ALIGN_LABEL_SMOOTHING} | options
        taken = {name: getattr(config, name) for name in _SHARED_KEYS if hasattr(config, name)}
        settings = config.to_dict() if kind == cls.config_class.model_type else taken
        model = cls(cls.config_class.from_dict(settings | options))
        own = model.state_dict()
        for saved, value in native.state_dict().items():
            for name in (saved, *(saved.replace(a, b) for a, b in _NAMES)):
                if name in own:
                    own[name] = value
        model.load_state_dict(own)
        return model.train(native.training)

    @torch.no_grad()
    def reset_heads(self: Any) -> None:
        """Draws the layers between the towers and the shared space anew; towers and temperature stay as they are."""
        kept = (self.similarity, *self.towers.values())
        for module in (part for child in self.children() if child not in kept for part in child.modules()):
            for part in (module, *module.parameters(recurse=False)):
                part._is_hf_initialized = False  # transformers leaves alone what was loaded
            self._init_weights(module)


def text_tower_of(source: Source, pooling: str = "cls", **loading: Any) -> PreTrainedModel:
    """Returns a pretrained text encoder.

    Args:
        source: a folder or a Hub id, or a model: a text encoder, or a dual encoder that has one.
        pooling: how its texts will be pooled.
        loading: arguments of `from_pretrained`, such as `revision`.
    """
    if isinstance(source, PreTrainedModel):
        tower = _inside(source, _TEXT) if _is_dual_encoder(source.config) else source
    elif _is_dual_encoder(load_config(source, **loading)):
        tower = _loaded_from_dual_encoder(source, _TEXT, **loading)
    else:
        return load_text_encoder(source, pooling=pooling, **loading)
    check_text_encoder(tower.config)
    check_pooling(tower, pooling)
    return tower


def image_tower_of(source: Source, **loading: Any) -> PreTrainedModel:
    """Returns a pretrained vision backbone.

    Args:
        source: a folder or a Hub id, or a model: a vision backbone, or a dual encoder that has one.
        loading: arguments of `from_pretrained`, such as `revision`.
    """
    if isinstance(source, PreTrainedModel):
        tower = _inside(source, _IMAGE) if _is_dual_encoder(source.config) else source
    else:
        config = load_config(source, **loading)
        if _is_dual_encoder(config):
            tower = _loaded_from_dual_encoder(source, _IMAGE, **loading)
        else:
            untrained: set[str] = set()
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
    model = load_model(AutoModel, source, part=lambda whole: without_pooler(_inside(whole, tower)), **loading)
    return _inside(model, tower)


# ---- Text encoders ----
# Text encoders of any kind: which models are one, which pooling they have, and how they are loaded from what
# others have published, a folder, a repository of the Hub, or a model.


def chosen_pooling(
    source: str | Path | PreTrainedModel, given: TextPooling | None = None, **loading: Any
) -> TextPooling:
    """Returns how the texts of an encoder are pooled: as was asked for, else as its folder states, else at the first
    token.

    Args:
        source: a folder, a repository of the Hub, or a model.
        given: the pooling that was asked for.
        loading: arguments of `from_pretrained`.
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


# ---- How a text encoder wants its texts to be pooled, as the files of sentence-transformers state it ----

_FILE = "1_Pooling/config.json"
# The names of sentence-transformers: `{"pooling_mode": "mean"}` in newer files, `{"pooling_mode_mean_tokens": true}`
# in older ones.
_POOLINGS: dict[str, TextPooling] = {"cls": "cls", "mean": "mean", "lasttoken": "eos"}
_OLD_NAMES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}


def declared_pooling(source: str | Path | PreTrainedModel, **loading: Any) -> TextPooling | None:
    """Returns the pooling that the folder of a text encoder states in `1_Pooling/config.json`, as those of
    sentence-transformers do (E5, LaBSE, MiniLM).

    Args:
        source: a folder, a repository of the Hub, or a model, which states none.
        loading: arguments of `from_pretrained`, such as `revision`.

    Returns:
        `None` if there is no such file.

    Examples:
        >>> declared_pooling("intfloat/multilingual-e5-small")
        'mean'
    """
    if isinstance(source, PreTrainedModel):
        return None
    file = optional_file(source, _FILE, loading)
    if file is None:
        return None
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
        modes = settings.get("pooling_mode") or [name for key, name in _OLD_NAMES.items() if settings.get(key)]
        stated = [modes] if isinstance(modes, str) else list(modes)
    except (ValueError, AttributeError, TypeError) as error:
        raise ModelFolderError(f"{source}: {_FILE} is damaged: {error}") from error
    if len(stated) != 1 or stated[0] not in _POOLINGS:
        raise ModelKindError(
            f"{source} pools texts by {' and '.join(map(str, stated)) or 'nothing'} ({_FILE}), which babelens does "
            f"not have: choose text_pooling, one of {', '.join(_POOLINGS.values())} or pooler"
        )
    return _POOLINGS[stated[0]]

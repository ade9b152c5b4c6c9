"""Pretrained towers: a text encoder or a vision backbone from a folder, from the Hub, or out of another model."""

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel

from ..configuration.configuration_two_tower import IMAGE_TEXT, POOLER, DualEncoderConfig, TextPooling, TwoTowerConfig
from ..utils.errors import ModelFolderError, ModelKindError
from ..utils.files import optional_file
from ..utils.pretrained import explained, load_config, load_model, located
from .modeling_common import check_pooling, check_text_encoder, vision_tower
from .modeling_dual_encoder import build_tower, tower_class

Source: TypeAlias = PreTrainedModel | str | Path

_TEXT, _IMAGE = "text", "vision"  # begin a dual encoder's names for its towers and their configurations
_ALIGN_LABEL_SMOOTHING = 0.1  # of Jia et al. 2021, section 5, and a constant in transformers' AlignModel
# Keys that one kind of model takes over from another.
_SHARED_KEYS = {*TwoTowerConfig.__annotations__, *DualEncoderConfig.__annotations__} - {"sub_configs_defaults"}
_SHARED_KEYS |= {"text_text_temperature", "text_text_margin"}
# Names of weights in other kinds of models, and here: ETCL and ALIGN have one head for texts.
_NAMES = (
    (f"text_heads.{IMAGE_TEXT}", "text_projection"),
    ("text_projection", f"text_heads.{IMAGE_TEXT}"),
    ("temperature", "similarity.temperature"),
)
_POOLING_FILE = "1_Pooling/config.json"
_POOLINGS: dict[str, TextPooling] = {"cls": "cls", "mean": "mean", "lasttoken": "eos"}  # sentence-transformers' names


def model_of_towers(
    model_class: Any,
    image: Source,
    text: Source,
    *,
    fresh: Collection[str] = (),
    loading: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Makes a model of two pretrained towers: see `TwoTowerModel.from_towers`."""
    where = loading or {}
    pooling = chosen_pooling(text, options.pop("text_pooling", None), **where)
    encoder = load_text_encoder(_tower(text, _TEXT, **where), pooling=pooling, **where)
    towers = {"text": encoder, "image": _image_tower(image, **where)}
    config = config_of_towers(model_class.config_class, towers["image"], encoder, text_pooling=pooling, **options)
    model = model_class(config).to(encoder.dtype)
    for name in towers.keys() - set(fresh):
        own = model.towers[name].state_dict()  # without unused parts, such as a pooling layer
        weights = {key: value for key, value in towers[name].state_dict().items() if key in own}
        model.towers[name].load_state_dict(weights)
    return model


def model_from_native(model_class: Any, native: Source, **options: Any) -> Any:
    """Makes a model of a trained MURAL, ETCL or ALIGN: see `TwoTowerModel.from_native`."""
    if not isinstance(native, PreTrainedModel):
        native = AutoModel.from_pretrained(native)
    config, kind, config_class = native.config, native.config.model_type, model_class.config_class
    if kind not in ("align", "etcl", "mural"):
        raise ModelKindError(f"{model_class.__name__} starts from a MURAL, an ETCL or an ALIGN, not from {kind!r}")
    if kind == "align" and "tasks" in config_class.__annotations__:
        options = {"tasks": [IMAGE_TEXT], "label_smoothing": _ALIGN_LABEL_SMOOTHING} | options
    taken = {name: getattr(config, name) for name in _SHARED_KEYS if hasattr(config, name)}
    settings = config.to_dict() if kind == config_class.model_type else taken
    model = model_class(config_class.from_dict(settings | options))
    own = model.state_dict()
    for saved, value in native.state_dict().items():
        for name in (saved, *(saved.replace(a, b) for a, b in _NAMES)):
            if name in own:
                own[name] = value
    model.load_state_dict(own)
    return model.train(native.training)


@torch.no_grad()
def reset_heads(model: Any) -> None:
    """Initializes the layers between the towers and the shared space again; towers and temperature stay."""
    kept = (model.similarity, *model.towers.values())
    for module in (part for child in model.children() if child not in kept for part in child.modules()):
        for part in (module, *module.parameters(recurse=False)):
            part._is_hf_initialized = False  # transformers does not initialize loaded weights again
        model._init_weights(module)


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
    """Returns the configuration of `from_towers`, without loading weights of folders. Only weights show whether a ViT
    has a trained pooling layer; without one, `from_towers` sets `image_pooling` to `cls`."""
    where = loading or {}
    pooling = chosen_pooling(text, text_pooling, **where)
    if projection_dim is not None:
        options = {"projection_dim": projection_dim, "image_head": True} | options
    if isinstance(image, PreTrainedModel) and getattr(_image_tower(image), "pooler", True) is None:
        options = {"image_pooling": "cls"} | options
    text_config, vision_config = _config_in(_config(text, **where), _TEXT), _config_in(_config(image, **where), _IMAGE)
    check_text_encoder(text_config)
    if pooling == POOLER and not isinstance(text, PreTrainedModel):
        with torch.device("meta"):
            check_pooling(build_tower(text_config, pooler=True), pooling)
    if (chosen := tower_class(vision_config)) is not AutoModel:
        vision_tower(chosen)
    return config_class(
        text_config=text_config,
        vision_config=vision_config,
        text_pooling=pooling,
        text_prompt=text_prompt or "",
        freeze=freeze if isinstance(freeze, str) else list(freeze),  # the configuration refuses a text
        **options,
    )


def _config(source: Source, **loading: Any) -> PreTrainedConfig:
    return source.config if isinstance(source, PreTrainedModel) else load_config(source, **loading)


def _config_in(config: PreTrainedConfig, kind: str) -> PreTrainedConfig:
    """Returns the configuration of a tower of a dual encoder, or of another model."""
    native = getattr(config, "base_config", config)  # an MLA model's contains a dual encoder's
    is_dual_encoder = all(hasattr(native, f"{each}_config") for each in (_TEXT, _IMAGE))
    return getattr(native, f"{kind}_config") if is_dual_encoder else config


def _tower(source: Source, kind: str, **loading: Any) -> Source:
    """Returns a tower of a dual encoder, or a source that is another model."""

    def tower_in(model: Any) -> Any:
        return getattr(getattr(model, "native_model", model), f"{kind}_model")

    config = _config(source, **loading)
    if _config_in(config, kind) is config:
        return source
    if not isinstance(source, PreTrainedModel):
        source = load_model(AutoModel, source, part=lambda model: without_pooler(tower_in(model)), **loading)
    return tower_in(source)


def _image_tower(source: Source, **loading: Any) -> PreTrainedModel:
    tower: Any = _tower(source, _IMAGE, **loading)
    if not isinstance(tower, PreTrainedModel):
        untrained: set[str] = set()
        kind = tower_class(load_config(source, **loading))
        tower = load_model(kind, source, part=without_pooler, untrained=untrained, **loading)
        if untrained:  # a pooling layer that the files lack, as for a ViT for classification
            tower.pooler = None
    return vision_tower(tower)


def load_text_encoder(source: Source, *, pooling: str, **loading: Any) -> PreTrainedModel:
    """Returns a text encoder from a folder, the Hub, or a model. Weights of its pooling layer may be missing unless
    `pooling` is `pooler`: checkpoints of masked language modeling have none."""
    model: Any = source
    config = _config(source, **loading)
    check_text_encoder(config)
    if not isinstance(source, PreTrainedModel):
        if config.model_type == "m2m_100":  # a whole translator, such as NLLB, or only an encoder, such as SONAR's
            loading["key_mapping"] = {r"^model\.encoder\.": "", r"^model\.shared\.": "embed_tokens."}
        model = load_model(tower_class(config), source, part=None if pooling == POOLER else without_pooler, **loading)
    check_pooling(model, pooling)
    return model


def without_pooler(model: PreTrainedModel) -> nn.Module:
    """Returns the parts of an encoder except its pooling layer, whose weights checkpoints may lack."""
    return nn.ModuleList(module for name, module in model.named_children() if name != "pooler")


def chosen_pooling(source: Source, given: TextPooling | None = None, **loading: Any) -> TextPooling:
    """Returns the given pooling, else the one that the folder of a text encoder states, else `cls`."""
    if given is not None or isinstance(source, PreTrainedModel):
        return given or "cls"
    source, loading = str(source), located(source, **loading)
    with explained(source, loading):
        return declared_pooling(source, **loading) or "cls"


def declared_pooling(source: str | Path, **loading: Any) -> TextPooling | None:
    """Returns the pooling that a text encoder's folder states in `1_Pooling/config.json`, which sentence-transformers
    writes (E5, LaBSE, MiniLM); `None` without that file."""
    if (file := optional_file(source, _POOLING_FILE, loading)) is None:
        return None
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
        # Newer files have {"pooling_mode": "mean"}, older ones {"pooling_mode_mean_tokens": true}.
        old = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value]
        stated = settings.get("pooling_mode") or [re.sub("^pooling_mode_|_tokens?$", "", key) for key in old]
        modes = [stated] if isinstance(stated, str) else list(stated)
    except (ValueError, AttributeError, TypeError) as error:
        raise ModelFolderError(f"{source}: {_POOLING_FILE} is damaged: {error}") from error
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        named = " and ".join(map(str, modes)) or "nothing"
        raise ModelKindError(
            f"{source} pools texts by {named} ({_POOLING_FILE}): choose text_pooling cls, mean or eos"
        )
    return _POOLINGS[modes[0]]

"""Models of babelens as stock models of transformers, which everybody loads without this package and without its code.

A MURAL or ETCL with BERT and EfficientNet computes what transformers' `AlignModel` does; with pooling layers of their
own and linear layers without bias, what `VisionTextDualEncoderModel` does. A student of CLIP that reads BERT at [CLS]
is a `ChineseCLIPModel`. An MLA reads its native language with a stock model that its acquirers leave as it was. Where
a stock class has no bias in its linear layer, the bias moves into the normalization that the layer reads.

A text tower alone is a stock encoder, a way to pool its states, and linear layers: what sentence-transformers calls
Transformer, Pooling and Dense (`stock_text_encoder`).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AlignConfig,
    AlignModel,
    AlignTextConfig,
    AutoModel,
    BertConfig,
    ChineseCLIPConfig,
    ChineseCLIPModel,
    ChineseCLIPTextConfig,
    ChineseCLIPVisionConfig,
    CLIPConfig,
    CLIPModel,
    PreTrainedConfig,
    PreTrainedModel,
    VisionTextDualEncoderConfig,
    VisionTextDualEncoderModel,
)

from ..configuration.configuration_two_tower import POOLER, image_width
from ..configuration.errors import BabelensError, ModelKindError
from .modeling_dual_encoder import MIN_TEMPERATURE
from .modeling_mla import MlaModel
from .modeling_mla_student import MlaStudentModel
from .modeling_two_tower import TwoTowerModel

# Largest part of a bias that may be lost where it moves into a normalization.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class StockModel:
    """A model of transformers with the embeddings of another.

    Args:
        model: the model, whose class comes with transformers.
        lost: what the other model has and this one lacks, a sentence each.
        language: the only language that it reads as the other does; None if it reads all of them.
    """

    model: PreTrainedModel
    lost: tuple[str, ...] = ()
    language: str | None = None


@dataclass(frozen=True)
class StockTextEncoder:
    """The text tower of a dual encoder, in parts that come with transformers.

    Args:
        encoder: the text encoder, whose own pooling layer is not read, and has zeros.
        pooling: `cls` or `mean`, how its states become one vector.
        layers: linear layers behind it, each with whether the hyperbolic tangent follows; at least one.
        language: the only language that it reads as the dual encoder does; None if it reads all of them.
    """

    encoder: PreTrainedModel
    pooling: str
    layers: tuple[tuple[nn.Linear, bool], ...]
    language: str | None = None


@dataclass
class _Tower:
    """A tower with the linear layer behind it; `weight` is None where its pooled features are the embeddings."""

    config: PreTrainedConfig
    states: dict[str, Tensor]
    pooling: str
    weight: Tensor | None = None
    bias: Tensor | None = None

    @property
    def kind(self) -> str:
        return str(self.config.model_type)


@dataclass
class _Parts:
    """A dual encoder of two towers that meet in a space of the width `width`."""

    text: _Tower
    image: _Tower
    width: int
    temperature: float


class _Unequal(BabelensError):
    """A stock class does not compute what a model computes; says why."""


def stock_model(model: PreTrainedModel) -> StockModel:
    """Makes a stock model of transformers that has the embeddings of a model.

    Args:
        model: a dual encoder of babelens, or one of transformers, which is returned as it is.

    Returns:
        The stock model in float32 or the model's own type, with copies of the weights, and what it lacks.

    Raises:
        ModelKindError: if no class of transformers computes what the model computes; says of each class why.

    Examples:
        >>> stock_model(MuralModel.from_pretrained("runs/mural")).model
        AlignModel(…)
    """
    if type(model).__module__.startswith("transformers."):
        return StockModel(model)
    if isinstance(model, MlaModel):
        native = stock_model(model.unload())
        acquired = f"the languages that it acquired: {', '.join(model.config.languages)}"
        return StockModel(native.model, (*native.lost, acquired), model.config.native_language)
    if isinstance(model, MlaStudentModel):
        return _converted(model, _of_student(model), _lost_by_student(model))
    if isinstance(model, TwoTowerModel):
        return _converted(model, _of_two_towers(model), _lost_by_two_towers(model))
    raise ModelKindError(
        f"no class of transformers computes what a {type(model).__name__} does; its folder loads with "
        "trust_remote_code=True"
    )


def _converted(model: PreTrainedModel, parts: _Parts, lost: tuple[str, ...]) -> StockModel:
    """Takes the first stock class that computes the same."""
    reasons = {}
    for name, build in _BUILDERS.items():
        try:
            made = build(parts)
        except _Unequal as reason:
            reasons[name] = str(reason)
            continue
        return StockModel(made.to(model.dtype).eval(), lost)
    told = "; ".join(f"{name} {reason}" for name, reason in reasons.items())
    raise ModelKindError(f"no class of transformers computes what this {type(model).__name__} does: {told}")


def _lost_by_two_towers(model: Any) -> tuple[str, ...]:
    heads = len(getattr(model, "text_heads", ()))
    lost = ["the head that compares texts with texts (task text_text)"] if heads > 1 else []
    if model.similarity.bias is not None:
        lost.append("the bias of its logits, which it learned with SigLIP's loss, and which changes no ranks")
    return tuple(lost)


def _lost_by_student(model: Any) -> tuple[str, ...]:
    if model.config.native_texts == "native":
        return (f"the native model's own reading of {model.config.native_language}, which its text encoder reads too",)
    return ()


# ---- The parts of a model ----


def _of_two_towers(model: Any) -> _Parts:
    config = model.config
    text = _text_tower(model, model.training_head(True, False))
    image = _Tower(config.vision_config, _copied(model.vision_model), config.image_pooling)
    if config.image_head:
        image.weight, image.bias = _linear(model.image_projection)
    return _Parts(text, image, config.projection_dim, model.similarity().item())


def _without_acquirers(student: Any) -> Any:
    if student.config.strategy == "acquisition":
        raise ModelKindError("no class of transformers has the acquirers of a student with strategy='acquisition'")
    return student


def _of_student(model: Any) -> _Parts:
    native = _without_acquirers(model).native_model
    if isinstance(native, TwoTowerModel):
        image = _of_two_towers(native).image
    else:
        image = _Tower(native.config.vision_config, _copied(native.vision_model), POOLER)
        if hasattr(native, "visual_projection"):
            image.weight, image.bias = _linear(native.visual_projection)
    text = _text_tower(model, model.projection)
    given = model.temperature_parameter.detach()
    temperature = (-given).exp() if hasattr(native, "logit_scale") else given.clamp(min=MIN_TEMPERATURE)
    return _Parts(text, image, len(model.projection.weight), temperature.item())


def _text_tower(model: Any, head: nn.Module) -> _Tower:
    config = model.config
    if not isinstance(head, nn.Linear):
        raise ModelKindError("no class of transformers has a hidden layer behind its text tower (text_hidden_size)")
    if config.text_layer_norm:
        raise ModelKindError("no class of transformers normalizes pooled texts (text_layer_norm)")
    weight, bias = _linear(head)
    return _Tower(config.text_config, _copied(model.text_model), config.text_pooling, weight, bias)


def _linear(layer: Any) -> tuple[Tensor, Tensor | None]:
    bias = None if layer.bias is None or not layer.bias.any() else layer.bias.detach().double()
    return layer.weight.detach().double(), bias


def _copied(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


# ---- The text tower alone ----

# Architectures that inference servers know, and those that are one of them by another name.
TEXT_KINDS = ("bert", "camembert", "roberta", "xlm-roberta")
_OTHER_BERTS = ("align_text_model", "chinese_clip_text_model")


def stock_text_encoder(model: PreTrainedModel) -> StockTextEncoder:
    """Takes the text tower out of a dual encoder, as parts that every program has which runs text encoders.

    Args:
        model: a dual encoder of babelens, or one of transformers.

    Returns:
        The encoder in the model's own type, with copies of the weights, how it is pooled, and the layers behind it.

    Raises:
        ModelKindError: for a text tower that is neither a BERT nor a RoBERTa, that is pooled otherwise than at its
            first token, by the mean, or by its pooling layer, or that has other layers behind it than linear ones.

    Examples:
        >>> stock_text_encoder(MlaStudentModel.from_pretrained("runs/student")).pooling
        'mean'
    """
    language = None
    if isinstance(model, MlaModel):
        language = model.config.native_language
        model = model.unload()
    text = _texts_of(model)
    if text.kind in _OTHER_BERTS:
        text.config = _as(BertConfig, text.config)
    if text.kind not in TEXT_KINDS:
        raise ModelKindError(
            f"this model reads texts with {text.kind!r}, and servers of text encoders know {', '.join(TEXT_KINDS)}"
        )
    layers, pooling = [], text.pooling
    if pooling == POOLER and "pooler.dense.weight" in text.states:
        pooled = [text.states[f"pooler.dense.{name}"] for name in ("weight", "bias")]
        layers.append((_as_layer(*pooled), True))
        pooling = "cls"
    if pooling not in ("cls", "mean"):
        raise ModelKindError(
            f"servers of text encoders read a text at its first token or by the mean, and this model by {pooling!r}"
        )
    if text.weight is None:
        raise ModelKindError("this model has no linear layer behind its text tower")
    layers.append((_as_layer(text.weight, text.bias), False))
    encoder = AutoModel.from_config(text.config)
    _load(encoder, text.states, unread=("pooler.",))
    made = encoder.to(model.dtype).eval()
    return StockTextEncoder(made, pooling, tuple((layer.to(model.dtype), bent) for layer, bent in layers), language)


def _texts_of(model: Any) -> _Tower:
    """The text tower of a model, with the linear layer behind it."""
    if isinstance(model, MlaStudentModel):
        return _text_tower(model, _without_acquirers(model).projection)
    if isinstance(model, TwoTowerModel):
        return _text_tower(model, model.training_head(True, False))
    pooling = {AlignModel: "cls", ChineseCLIPModel: "cls", VisionTextDualEncoderModel: POOLER}.get(type(model))
    if pooling is None:
        raise ModelKindError(f"a {type(model).__name__} has no text tower that servers of text encoders know")
    return _Tower(model.text_model.config, _copied(model.text_model), pooling, *_linear(model.text_projection))


def _as_layer(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    _set(layer.weight, weight)
    if bias is not None:
        _set(layer.bias, bias)
    return layer


# ---- The stock classes ----


def _align(parts: _Parts) -> PreTrainedModel:
    text, image = parts.text, parts.image
    _need(text.kind in ("bert", "align_text_model"), f"reads texts with BERT, and not with {text.kind!r}")
    _need(image.kind == "align_vision_model", f"reads images with EfficientNet, and not with {image.kind!r}")
    _need(text.pooling == "cls", f"pools texts at [CLS], and not by {text.pooling!r}")
    _need(image.pooling == POOLER and image.weight is None, "does not project images")
    config = AlignConfig(
        text_config=_as(AlignTextConfig, text.config).to_dict(),
        vision_config=image.config.to_dict(),
        projection_dim=parts.width,
        temperature_init_value=parts.temperature,
    )
    model = AlignModel(config)
    _load(model.text_model, text.states, unread=("pooler.",))
    _load(model.vision_model, image.states)
    _set(model.text_projection.weight, text.weight)
    _set(model.text_projection.bias, torch.zeros(parts.width) if text.bias is None else text.bias)
    _set(model.temperature, torch.tensor(parts.temperature))
    return model


def _clip(parts: _Parts) -> PreTrainedModel:
    text, image = parts.text, parts.image
    _need(text.kind == "clip_text_model", f"reads texts with its own tower, and not with {text.kind!r}")
    _need(text.pooling in ("eos", POOLER), f"pools texts at their end, and not by {text.pooling!r}")
    _need_clip_images(image)
    sub = {"text_config": text.config.to_dict(), "vision_config": image.config.to_dict()}
    model = CLIPModel(CLIPConfig(**sub, projection_dim=parts.width))
    _move_bias(text, "final_layer_norm.bias")
    _move_bias(image, "post_layernorm.bias")
    return _filled(model, parts)


def _chinese_clip(parts: _Parts) -> PreTrainedModel:
    text, image = parts.text, parts.image
    _need(text.kind in ("bert", "chinese_clip_text_model"), f"reads texts with BERT, and not with {text.kind!r}")
    _need(text.pooling == "cls", f"pools texts at [CLS], and not by {text.pooling!r}")
    _need_clip_images(image)
    config = ChineseCLIPConfig(
        text_config=_as(ChineseCLIPTextConfig, text.config).to_dict(),
        vision_config=_as(ChineseCLIPVisionConfig, image.config).to_dict(),
        projection_dim=parts.width,
    )
    _move_bias(text, f"encoder.layer.{text.config.num_hidden_layers - 1}.output.LayerNorm.bias")
    _move_bias(image, "post_layernorm.bias")
    return _filled(ChineseCLIPModel(config), parts)


def _vision_text_dual_encoder(parts: _Parts) -> PreTrainedModel:
    text, image = parts.text, parts.image
    own_end = text.kind == "clip_text_model" and text.pooling == "eos"
    _need(text.pooling == POOLER or own_end, f"pools texts by their tower's own layer, and not by {text.pooling!r}")
    _need(image.pooling == POOLER, f"pools images by their tower's own layer, and not by {image.pooling!r}")
    _move_bias(text, "final_layer_norm.bias")
    _move_bias(image, *(name for name in ("post_layernorm.bias", "layernorm.bias") if name in image.states))
    if not isinstance(getattr(image.config, "hidden_size", None), int):
        image.config.hidden_size = image_width(image.config)  # by which that class knows the width of features
    config = VisionTextDualEncoderConfig.from_vision_text_configs(
        image.config, text.config, projection_dim=parts.width
    )
    try:
        model = VisionTextDualEncoderModel(config)
    except (ValueError, AttributeError, TypeError) as error:
        raise _Unequal(f"cannot be made of {image.kind!r} and {text.kind!r}") from error
    return _filled(model, parts)


_BUILDERS: dict[str, Callable[[_Parts], PreTrainedModel]] = {
    "AlignModel": _align,
    "CLIPModel": _clip,
    "ChineseCLIPModel": _chinese_clip,
    "VisionTextDualEncoderModel": _vision_text_dual_encoder,
}


def _filled(model: Any, parts: _Parts) -> PreTrainedModel:
    """Gives a model with CLIP's names its weights."""
    _load(model.text_model, parts.text.states, unread=("pooler.",) if parts.text.pooling == "cls" else ())
    _load(model.vision_model, parts.image.states)
    _set(model.text_projection.weight, parts.text.weight)
    images = parts.image.weight
    _set(model.visual_projection.weight, torch.eye(parts.width) if images is None else images)
    _set(model.logit_scale, torch.tensor(-math.log(parts.temperature)))
    if hasattr(model.config, "logit_scale_init_value"):
        model.config.logit_scale_init_value = -math.log(parts.temperature)
    return model


def _need(condition: bool, reason: str) -> None:
    if not condition:
        raise _Unequal(reason)


def _need_clip_images(image: _Tower) -> None:
    kinds = ("clip_vision_model", "chinese_clip_vision_model")
    _need(image.kind in kinds, f"reads images with CLIP's tower, and not with {image.kind!r}")
    _need(image.pooling == POOLER, f"pools images by their tower's own layer, and not by {image.pooling!r}")


def _as(config_class: Any, config: PreTrainedConfig) -> PreTrainedConfig:
    """A configuration of another class of the same architecture."""
    own = {name: value for name, value in config.to_dict().items() if name not in ("model_type", "architectures")}
    made: PreTrainedConfig = config_class(**own)
    return made


def _move_bias(tower: _Tower, *names: str) -> None:
    """Moves the bias of the linear layer into that of the normalization before it, where the tower has one.

    Raises:
        _Unequal: if it has none, or none whose bias the linear layer could turn into its own.
    """
    if tower.bias is None or tower.weight is None:
        return
    found = [name for name in names if name in tower.states]
    _need(bool(found), f"has no bias behind its {tower.kind!r} tower, and nothing before it that could hold one")
    moved = torch.linalg.lstsq(tower.weight, tower.bias[:, None], driver="gelsd").solution[:, 0]
    rest = (tower.weight @ moved - tower.bias).abs().max()
    _need(bool(rest <= _ROUNDING), f"has no bias behind its {tower.kind!r} tower, which is narrower than the space")
    name = found[0]
    tower.states[name] = (tower.states[name].double() + moved).to(tower.states[name].dtype)


@torch.no_grad()
def _set(weight: Tensor, value: Tensor | None) -> None:
    if value is not None:
        weight.copy_(value)


def _load(module: nn.Module, states: Mapping[str, Tensor], *, unread: tuple[str, ...] = ()) -> None:
    """Loads the weights of a tower; those of layers that are not read are zeros.

    Raises:
        _Unequal: if the tower has other weights.
    """
    own = module.state_dict()
    found = {name: value for name, value in states.items() if not name.startswith(unread)}
    absent = {name for name in own if name not in found}
    missing = [name for name in absent if not name.startswith(unread)]
    _need(not missing and found.keys() <= own.keys(), "has a tower of this kind with other weights")
    module.load_state_dict(found | {name: torch.zeros_like(own[name]) for name in absent})


__all__ = ["TEXT_KINDS", "StockModel", "StockTextEncoder", "stock_model", "stock_text_encoder"]

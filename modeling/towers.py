"""The towers of dual encoders: text encoders and vision backbones of transformers, built from their configurations,
and how one vector for a text or an image is read from their states."""

from inspect import signature
from operator import attrgetter
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_MAPPING,
    AutoModel,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPooling

from ..configuration.configuration_two_tower import POOLER
from ..utils.errors import ModelKindError

# Towers that `AutoModel` does not have, or has with a decoder only; `model_type` -> the class in transformers.
CLASSES = {
    "align_text_model": "AlignTextModel",
    "align_vision_model": "AlignVisionModel",
    "altclip_text_model": "AltCLIPTextModel",
    "altclip_vision_model": "AltCLIPVisionModel",
    "chinese_clip_text_model": "ChineseCLIPTextModel",
    "chinese_clip_vision_model": "ChineseCLIPVisionModel",
    "m2m_100": "models.m2m_100.modeling_m2m_100.M2M100Encoder",
    "metaclip_2_text_model": "MetaClip2TextModel",
    "metaclip_2_vision_model": "MetaClip2VisionModel",
    "mt5": "MT5EncoderModel",
    "siglip2_text_model": "Siglip2TextModel",
    "siglip_text_model": "SiglipTextModel",
    "t5": "T5EncoderModel",
    "umt5": "UMT5EncoderModel",
}


def tower_class(config: PreTrainedConfig) -> Any:
    """Returns the class of a tower, or `AutoModel` if transformers decides, as it does for code from the Hub."""
    name = CLASSES.get(config.model_type)
    found = attrgetter(name)(transformers) if name else MODEL_MAPPING.get(type(config), AutoModel)
    return AutoModel if isinstance(found, tuple) else found


def build_tower(config: PreTrainedConfig, *, pooler: bool | None = None) -> PreTrainedModel:
    """Builds an untrained text encoder or vision backbone.

    `pooler` says whether it has the optional pooling layer of some classes. By default, a vision backbone is as its
    class is, and a text encoder has none: next-sentence prediction trained that layer.
    """
    chosen = tower_class(config)
    if pooler is None and hasattr(config, "vocab_size"):
        pooler = False
    has_choice = pooler is not None and "add_pooling_layer" in signature(chosen).parameters
    options = {"add_pooling_layer": pooler} if has_choice else {}
    attends = hasattr(config, "num_attention_heads")
    if not attends:
        config._attn_implementation = "eager"  # the only one that transformers accepts for such towers
    if config.model_type in CLASSES:
        tower = chosen._from_config(config, **options)
    else:
        tower = AutoModel.from_config(config, **options)
    if not attends:  # so that another can be set later, for the text tower
        tower._supports_sdpa = tower._supports_flash_attn = tower._supports_flex_attn = True
    return tower


def text_head(width: int, out_width: int, hidden_size: int | None, dropout: float) -> nn.Module:
    """Returns new layers from the width of pooled texts to the width of a shared space: one linear layer, or two with
    a hidden layer of `hidden_size` between them, to which dropout is applied."""
    if hidden_size is None:
        return nn.Linear(width, out_width)
    layers = nn.Linear(width, hidden_size), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden_size, out_width)
    return nn.Sequential(*layers)


def text_head_input(width: int, *, layer_norm: bool, dropout: float) -> nn.Module:
    """Returns the modules between pooled texts and their head: an optional layer normalization, and dropout."""
    normalization = [nn.LayerNorm(width, elementwise_affine=False)] if layer_norm else []
    return nn.Sequential(*normalization, nn.Dropout(dropout))


def vision_tower(model: Any) -> Any:
    """Returns a vision backbone, or the vision tower of a dual encoder or of an MLA model."""
    for part in ("native_model", "vision_model"):
        model = getattr(model, part, model)
    if getattr(model, "main_input_name", None) != "pixel_values":
        kind = getattr(model.config_class, "model_type", "")
        raise ModelKindError(
            f"a {kind!r} model does not read images: a vision backbone does, such as a ViT, a DINOv2 or the image "
            "tower of a CLIP"
        )
    return model


def pool_image(output: BaseModelOutputWithPooling, pooling: str = POOLER) -> Tensor:
    """Returns one vector for each image, [N, width]: by the backbone's own pooling (`pooler`) or else the mean over
    positions; the state of the first position (`cls`); the mean over all positions (`mean`)."""
    pooled = getattr(output, "pooler_output", None) if pooling == POOLER else None
    if pooled is None:
        last = output.last_hidden_state  # [N, width, H, W] or [N, patches, width]
        if pooling == "cls" and last.dim() == 3:
            pooled = last[:, 0]
        else:
            pooled = last.mean((-2, -1)) if last.dim() == 4 else last.mean(1)
    return pooled.flatten(1)


def pool_text(
    output: BaseModelOutput,
    attention_mask: Tensor | None,
    pooling: str,
    *,
    input_ids: Tensor,
    end_id: int | None = None,
) -> Tensor:
    """Returns one vector for each text, [N, width].

    `cls` takes the state of the first token, `mean` the mean over the tokens of the text, `eos` the state of its last
    token (the first `end_id` in `input_ids` without a mask), `pooler` the encoder's own pooling.
    """
    if pooling == POOLER:
        return output.pooler_output
    states = output.last_hidden_state  # [N, T, width]
    if pooling == "cls":
        return states[:, 0]
    if pooling == "mean":
        if attention_mask is None:
            return states.mean(1)
        weights = attention_mask.to(states.dtype)[..., None]  # [N, T, 1]
        return (states * weights).sum(1) / weights.sum(1).clamp_min(1)
    positions = torch.arange(states.shape[1], device=states.device)
    if attention_mask is not None:
        last = (attention_mask * positions).argmax(-1)
    elif end_id is not None:
        last = (input_ids == end_id).int().argmax(-1)
    else:
        last = positions[-1].expand(len(states))
    return states[torch.arange(len(states), device=states.device), last]


def keep_frozen_parts_still(module: nn.Module) -> None:
    """Sets evaluation mode in the parts of a module whose weights are all frozen: they have no dropout, and no new
    batch statistics. Batch normalization updates its statistics only if all of its weights are trained."""
    trained = [weight.requires_grad for weight in module.parameters()]
    if trained and all(trained):
        return
    if isinstance(module, _NormBase) or (trained and not any(trained)):
        module.eval()
        return
    for child in module.children():
        keep_frozen_parts_still(child)


def check_text_encoder(config: PreTrainedConfig) -> None:
    """Checks that a configuration is for a text encoder, in which every token sees the whole text."""
    kind = config.model_type
    is_causal = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and type(config) not in MODEL_FOR_MASKED_LM_MAPPING
    is_causal = is_causal and not getattr(config, "use_bidirectional_attention", None)
    has_decoder = getattr(config, "is_decoder", False) or config.is_encoder_decoder
    has_vocabulary = isinstance(getattr(config, "vocab_size", None), int)
    if not has_vocabulary or (kind not in CLASSES and (has_decoder or is_causal)):
        raise ModelKindError(f"expected a text encoder, such as BERT, XLM-R, E5 or the encoder of mT5; got {kind!r}")


def check_pooling(tower: PreTrainedModel, pooling: str) -> None:
    """Checks that a text encoder has the requested pooling layer."""
    has_pooler = tower.config.model_type.endswith("_text_model") or getattr(tower, "pooler", None) is not None
    if pooling == POOLER and not has_pooler:
        kind = tower.config.model_type
        raise ModelKindError(f"this {kind!r} text encoder has no pooling layer: choose 'mean', 'cls' or 'eos'")

"""Converts checkpoints of the MLA authors' code, which use the names of OpenAI's CLIP.

model = mla_from_openai(torch.load("mla.pt", weights_only=True))
model.save_pretrained("mla-converted")
"""

import re

import torch
from torch import Tensor
from transformers import CLIPConfig

from ..configuration.configuration_mla import MlaConfig
from .modeling_mla import MlaModel

_BLOCK = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
    "attn.out_proj": "self_attn.out_proj",
}
_TEXT = {
    "token_embedding.weight": "text_model.embeddings.base_layer.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.base_layer.position_embedding.weight",
    "multilingual_embedding.weight": "text_model.embeddings.mla_embedding.table.weight",
    "multilingual_embedding_linear.weight": "text_model.embeddings.mla_embedding.projection.weight",
    "multilingual_embedding_linear.bias": "text_model.embeddings.mla_embedding.projection.bias",
    "ln_final.weight": "text_model.final_layer_norm.weight",
    "ln_final.bias": "text_model.final_layer_norm.bias",
    "text_projection": "text_projection.weight",
    "logit_scale": "logit_scale",
}
_VISION = {
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.ln_pre.weight": "vision_model.pre_layrnorm.weight",
    "visual.ln_pre.bias": "vision_model.pre_layrnorm.bias",
    "visual.ln_post.weight": "vision_model.post_layernorm.weight",
    "visual.ln_post.bias": "vision_model.post_layernorm.bias",
    "visual.proj": "visual_projection.weight",
}
_RESBLOCK = re.compile(
    r"(?P<visual>visual\.)?transformer\.resblocks\.(?P<layer>\d+)\.(?P<part>.+)\.(?P<kind>weight|bias)"
)
_ACQUIRER = re.compile(r"acquirer\.(?P<language>[^.]+)\.mlp\.(?P<part>c_fc|c_proj)")
_UNUSED = re.compile(r"acquirer\.[^.]+\.ln$")  # the authors' acquirers have a layer norm that is never called


def mla_from_openai(
    weights: dict[str, Tensor],
    *,
    text_heads: int | None = None,
    vision_heads: int | None = None,
    sep_token_id: int = 102,
    end_token_id: int | None = None,
) -> MlaModel:
    """Converts a checkpoint with the names of OpenAI's CLIP, and a vision transformer as the image tower, to an
    `MlaModel`.

    Args:
        weights: the state dict; sizes and languages follow from it.
        text_heads, vision_heads: numbers of attention heads; by default one for every 64 of the width, as in CLIP.
        sep_token_id: id of [SEP] in the multilingual vocabulary.
        end_token_id: id of the end-of-text token in the native vocabulary; by default the last one, as in CLIP.

    Raises:
        ValueError: if a name does not belong to such a checkpoint, or one is missing.

    Examples:
        >>> model = mla_from_openai(torch.load("mla.pt", weights_only=True))
        >>> model.save_pretrained("mla-converted")
    """
    named: dict[str, Tensor] = {}
    for name, value in weights.items():
        named |= _renamed(name, value)
    config = _config(weights, text_heads, vision_heads, sep_token_id, end_token_id)
    model = MlaModel(config)
    missing, unexpected = model.native_model.load_state_dict(named, strict=False)
    if missing or unexpected:
        raise ValueError(f"not an MLA checkpoint under CLIP's names: missing {missing[:5]}, unknown {unexpected[:5]}")
    return model.eval()


def _renamed(name: str, value: Tensor) -> dict[str, Tensor]:
    if name in _TEXT or name in _VISION:
        is_projection = name in ("text_projection", "visual.proj")  # applied as x @ W
        return {(_TEXT | _VISION)[name]: value.T if is_projection else value}
    match = _RESBLOCK.fullmatch(name) or re.fullmatch(
        r"(?P<visual>visual\.)?transformer\.resblocks\.(?P<layer>\d+)\.(?P<part>attn\.in_proj)_(?P<kind>weight|bias)",
        name,
    )
    if match is None:
        raise ValueError(f"{name!r} is not a weight of CLIP or MLA")
    part, kind = match["part"], match["kind"]
    tower = "vision_model.encoder.layers." if match["visual"] else "text_model.encoder.layers."
    wrapped = "" if match["visual"] else ".base_layer"
    block = tower + match["layer"]
    if _UNUSED.fullmatch(part):
        return {}
    if acquirer := _ACQUIRER.fullmatch(part):
        side = "down" if acquirer["part"] == "c_fc" else "up"
        return {f"{block}.mla_acquirers.{acquirer['language']}.{side}.{kind}": value}
    if part == "attn.in_proj":
        sides = zip("qkv", value.chunk(3), strict=True)
        return {f"{block}{wrapped}.self_attn.{side}_proj.{kind}": share for side, share in sides}
    if part not in _BLOCK:
        raise ValueError(f"{name!r} is not a weight of CLIP or MLA")
    return {f"{block}{wrapped}.{_BLOCK[part]}.{kind}": value}


def _config(
    weights: dict[str, Tensor],
    text_heads: int | None,
    vision_heads: int | None,
    sep_token_id: int,
    end_token_id: int | None,
) -> MlaConfig:
    vocab_size, text_width = weights["token_embedding.weight"].shape
    vision_width, channels, patch_size, _ = weights["visual.conv1.weight"].shape
    patches = len(weights["visual.positional_embedding"]) - 1
    text = {
        "vocab_size": vocab_size,
        "hidden_size": text_width,
        "intermediate_size": 4 * text_width,
        "num_hidden_layers": _count(weights, r"transformer\.resblocks\.(\d+)\."),
        "num_attention_heads": text_heads or text_width // 64,
        "max_position_embeddings": len(weights["positional_embedding"]),
        "eos_token_id": vocab_size - 1 if end_token_id is None else end_token_id,
    }
    vision = {
        "hidden_size": vision_width,
        "intermediate_size": 4 * vision_width,
        "num_hidden_layers": _count(weights, r"visual\.transformer\.resblocks\.(\d+)\."),
        "num_attention_heads": vision_heads or vision_width // 64,
        "num_channels": channels,
        "patch_size": patch_size,
        "image_size": patch_size * round(patches**0.5),
    }
    languages = dict.fromkeys(match["language"] for name in weights if (match := _ACQUIRER.search(name)))
    table = weights.get("multilingual_embedding.weight", torch.empty(0))
    if not languages or table.dim() != 2:
        raise ValueError("the checkpoint holds no acquirers with their multilingual embedding")
    sizes = {v.shape[0] for name, v in weights.items() if name.endswith(".mlp.c_fc.weight") and "acquirer" in name}
    return MlaConfig(
        base_config=CLIPConfig(
            text_config=text, vision_config=vision, projection_dim=weights["text_projection"].shape[1]
        ),
        languages=list(languages),
        acquirer_size=sizes.pop(),
        vocab_size=table.shape[0],
        embedding_size=table.shape[1],
        sep_token_id=sep_token_id,
    )


def _count(weights: dict[str, Tensor], pattern: str) -> int:
    return 1 + max(int(match[1]) for name in weights if (match := re.match(pattern, name)))

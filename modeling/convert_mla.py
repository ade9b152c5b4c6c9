"""Converts checkpoints of OpenAI's CLIP and of the MLA authors' code, which use the same names.

The image tower is a vision transformer or a ResNet (RN50, RN101, RN50x4, RN50x16, RN50x64). transformers' `CLIPModel`
has no ResNet, so a CLIP with a ResNet becomes a `VisionTextDualEncoderModel` of a `ClipResNetModel` and a
`CLIPTextModel`. Its image projection is the identity, because the attention that pools the images already projects.
"""

import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoModel,
    CLIPConfig,
    CLIPTextConfig,
    PreTrainedConfig,
    PreTrainedModel,
    VisionTextDualEncoderConfig,
)

from ..configuration.configuration_mla import RESNET_REDUCTION, ClipResNetConfig, MlaConfig
from ..utils.errors import ModelFolderError, first_line
from .acquirer import plain_name
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
    r"(?P<visual>visual\.)?transformer\.resblocks\.(?P<layer>\d+)\.(?P<part>.+)(?:\.|(?<=in_proj)_)(?P<kind>weight|bias)"
)
_ACQUIRER = re.compile(r"acquirer\.(?P<language>[^.]+)\.mlp\.(?P<part>c_fc|c_proj)")
_OF_RESNETS = "visual.attnpool.c_proj.weight"
_NOT_WEIGHTS = ("input_resolution", "context_length", "vocab_size")  # numbers stored with OpenAI's weights
_UNUSED = re.compile(r"acquirer\.[^.]+\.ln$")  # the authors' acquirers have a layer norm that is never called


def mla_from_openai(weights: dict[str, Tensor], *, sep_token_id: int = 102, **sizes: int | None) -> MlaModel:
    """Converts a checkpoint of MLA with the names of OpenAI's CLIP to an `MlaModel`.

    Args:
        weights: the state dict, which determines the sizes and the languages.
        sep_token_id: id of [SEP] in the multilingual vocabulary.
        sizes: as in `clip_from_openai`.

    Examples:
        >>> model = mla_from_openai(torch.load("mla.pt", weights_only=True))
        >>> model.save_pretrained("mla-converted")
    """
    named = _all_renamed(weights)
    model = MlaModel(_config(weights, _native_config(weights, **sizes), sep_token_id))
    return _loaded(model, model.native_model, named)


def clip_from_openai(weights: dict[str, Tensor], **sizes: int | None) -> PreTrainedModel:
    """Converts a checkpoint of OpenAI's CLIP to a `CLIPModel`, or to a `VisionTextDualEncoderModel` if the image tower
    is a ResNet.

    Args:
        weights: the state dict.
        sizes: `text_heads` and `vision_heads`, by default one for every 64 of the width, as in CLIP (in a ResNet, of
            the attention that pools its last stage); `end_token_id` in the native vocabulary, by default the last one.

    Examples:
        >>> clip = clip_from_openai(torch.jit.load("RN50.pt", map_location="cpu").state_dict())
        >>> model = MlaModel.from_native(clip, languages=["de", "fr"])
    """
    named = {plain_name(name): value for name, value in _all_renamed(weights).items()}
    model = AutoModel.from_config(_native_config(weights, **sizes))
    return _loaded(model, model, named)


def _loaded(model: Any, native: PreTrainedModel, named: dict[str, Tensor]) -> Any:
    missing, unexpected = native.load_state_dict(named, strict=False)
    if missing or unexpected:
        raise ValueError(f"not a checkpoint under CLIP's names: missing {missing[:5]}, unknown {unexpected[:5]}")
    return model.eval()


def _all_renamed(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Renames all weights to those of the native model that acquirers wrap."""
    named: dict[str, Tensor] = {}
    if is_resnet := _OF_RESNETS in weights:
        named["visual_projection.weight"] = torch.eye(len(weights[_OF_RESNETS]))
    for name, value in weights.items():
        if is_resnet and name.startswith("visual."):
            named[name.replace("visual.", "vision_model.", 1)] = value
        elif name not in _NOT_WEIGHTS:
            named |= _renamed(name, value)
    return named


def _renamed(name: str, value: Tensor) -> dict[str, Tensor]:
    if name in _TEXT or name in _VISION:
        is_projection = name in ("text_projection", "visual.proj")  # applied as x @ W
        return {(_TEXT | _VISION)[name]: value.T if is_projection else value}
    match = _RESBLOCK.fullmatch(name)
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


def _native_config(
    weights: dict[str, Tensor],
    text_heads: int | None = None,
    vision_heads: int | None = None,
    end_token_id: int | None = None,
) -> PreTrainedConfig:
    vocab_size, text_width = weights["token_embedding.weight"].shape
    projection_dim = weights["text_projection"].shape[1]
    text = {
        "vocab_size": vocab_size,
        "hidden_size": text_width,
        "intermediate_size": 4 * text_width,
        "num_hidden_layers": _layer_count(weights, r"transformer\.resblocks\.(\d+)\."),
        "num_attention_heads": text_heads or text_width // 64,
        "max_position_embeddings": len(weights["positional_embedding"]),
        "eos_token_id": vocab_size - 1 if end_token_id is None else end_token_id,
    }
    if _OF_RESNETS in weights:
        hidden_size, pooling_width = weights[_OF_RESNETS].shape
        positions = len(weights["visual.attnpool.positional_embedding"]) - 1
        resnet = ClipResNetConfig(
            width=pooling_width // RESNET_REDUCTION,
            depths=[_layer_count(weights, rf"visual\.layer{stage}\.(\d+)\.") for stage in range(1, 5)],
            hidden_size=hidden_size,
            num_attention_heads=vision_heads or pooling_width // 64,
            image_size=RESNET_REDUCTION * round(positions**0.5),
            num_channels=weights["visual.conv1.weight"].shape[1],
        )
        return VisionTextDualEncoderConfig.from_vision_text_configs(
            resnet, CLIPTextConfig(**text), projection_dim=projection_dim
        )
    vision_width, channels, patch_size, _ = weights["visual.conv1.weight"].shape
    patches = len(weights["visual.positional_embedding"]) - 1
    vision = {
        "hidden_size": vision_width,
        "intermediate_size": 4 * vision_width,
        "num_hidden_layers": _layer_count(weights, r"visual\.transformer\.resblocks\.(\d+)\."),
        "num_attention_heads": vision_heads or vision_width // 64,
        "num_channels": channels,
        "patch_size": patch_size,
        "image_size": patch_size * round(patches**0.5),
    }
    return CLIPConfig(text_config=text, vision_config=vision, projection_dim=projection_dim)


def _config(weights: dict[str, Tensor], native: PreTrainedConfig, sep_token_id: int) -> MlaConfig:
    languages = dict.fromkeys(match["language"] for name in weights if (match := _ACQUIRER.search(name)))
    table = weights.get("multilingual_embedding.weight", torch.empty(0))
    if not languages or table.dim() != 2:
        raise ValueError("the checkpoint holds no acquirers with their multilingual embedding")
    sizes = {v.shape[0] for name, v in weights.items() if name.endswith(".mlp.c_fc.weight") and "acquirer" in name}
    return MlaConfig(
        base_config=native,
        languages=list(languages),
        acquirer_size=sizes.pop(),
        vocab_size=table.shape[0],
        embedding_size=table.shape[1],
        sep_token_id=sep_token_id,
    )


def _layer_count(weights: dict[str, Tensor], pattern: str) -> int:
    """Returns the number of layers; the pattern matches their indices at the beginning of names."""
    return 1 + max(int(match[1]) for name in weights if (match := re.match(pattern, name)))


# ---- Files ----


def read_weights(file: Path) -> dict[str, Tensor]:
    """Returns the state dict of a checkpoint, in float32: of a safetensors file; of a file written by `torch.save`,
    read with weights-only unpickling, also one level down (`state_dict`); or of one of OpenAI's TorchScript archives,
    which contain code."""
    try:
        if file.suffix == ".safetensors":
            held: Any = load_file(file)
        elif _is_archive(file):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # about the format of OpenAI's files
                held = torch.jit.load(str(file), map_location="cpu").state_dict()
        else:
            held = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # unpickling other bytes can raise anything
        raise ModelFolderError(f"{file} is not a checkpoint of weights: {first_line(error)}") from error
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(held, dict) and isinstance(held.get(key), dict):
            held = held[key]
    if not isinstance(held, dict) or not any(isinstance(value, Tensor) for value in held.values()):
        raise ModelFolderError(f"{file} holds no weights by their names")
    tensors = {name.removeprefix("module."): value for name, value in held.items() if isinstance(value, Tensor)}
    return {name: value.float() if value.is_floating_point() else value for name, value in tensors.items()}


def _is_archive(file: Path) -> bool:
    """Returns whether a file is a TorchScript archive, which has a member for its constants."""
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())

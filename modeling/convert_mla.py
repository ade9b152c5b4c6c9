"""Converts checkpoints of OpenAI's CLIP and of the MLA authors' code, which use the same names. A CLIP with a ResNet,
which `CLIPModel` does not have, becomes a `VisionTextDualEncoderModel`. Its image projection is the identity, because
the attention that pools the images already projects."""

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

# Names in OpenAI's checkpoints -> names in the native model that acquirers wrap, applied one after the other.
_RENAMINGS = (
    (r"^visual\.transformer\.resblocks\.", "vision_model.encoder.layers."),
    (r"^transformer\.resblocks\.(\d+)\.acquirer\.([^.]+)\.mlp\.", r"text_model.encoder.layers.\1.mla_acquirers.\2."),
    (r"^transformer\.resblocks\.(\d+)\.", r"text_model.encoder.layers.\1.base_layer."),
    (r"(\.mla_acquirers\.[^.]+)\.c_fc\.", r"\1.down."),
    (r"(\.mla_acquirers\.[^.]+)\.c_proj\.", r"\1.up."),
    (r"\.mlp\.c_fc\.", ".mlp.fc1."),
    (r"\.mlp\.c_proj\.", ".mlp.fc2."),
    (r"\.ln_([12])\.", r".layer_norm\1."),
    (r"\.attn\.out_proj\.", ".self_attn.out_proj."),
    (r"^token_embedding\.", "text_model.embeddings.base_layer.token_embedding."),
    (r"^positional_embedding$", "text_model.embeddings.base_layer.position_embedding.weight"),
    (r"^multilingual_embedding\.", "text_model.embeddings.mla_embedding.table."),
    (r"^multilingual_embedding_linear\.", "text_model.embeddings.mla_embedding.projection."),
    (r"^ln_final\.", "text_model.final_layer_norm."),
    (r"^text_projection$", "text_projection.weight"),
    (r"^visual\.class_embedding$", "vision_model.embeddings.class_embedding"),
    (r"^visual\.conv1\.", "vision_model.embeddings.patch_embedding."),
    (r"^visual\.positional_embedding$", "vision_model.embeddings.position_embedding.weight"),
    (r"^visual\.ln_pre\.", "vision_model.pre_layrnorm."),
    (r"^visual\.ln_post\.", "vision_model.post_layernorm."),
    (r"^visual\.proj$", "visual_projection.weight"),
)
_TRANSPOSED = ("text_projection", "visual.proj")  # applied as x @ W
_IN_PROJECTION = re.compile(r"(.*\.)attn\.in_proj_(weight|bias)")  # of queries, keys and values
_ACQUIRER = re.compile(r"\.acquirer\.(?P<language>[^.]+)\.mlp\.")
# Numbers stored with OpenAI's weights, and a layer norm of the authors' acquirers that is never called.
_NOT_WEIGHTS = re.compile(r"input_resolution|context_length|vocab_size|.*\.acquirer\.[^.]+\.ln\.(weight|bias)")
_OF_RESNETS = "visual.attnpool.c_proj.weight"


def mla_from_openai(weights: dict[str, Tensor], *, sep_token_id: int = 102, **sizes: int | None) -> MlaModel:
    """Converts the state dict of an MLA with the names of OpenAI's CLIP. `sep_token_id` is the id of [SEP] in the
    multilingual vocabulary; `sizes` are as in `clip_from_openai`."""
    named = _all_renamed(weights)
    model = MlaModel(_config(weights, _native_config(weights, **sizes), sep_token_id))
    return _loaded(model, model.native_model, named)


def clip_from_openai(weights: dict[str, Tensor], **sizes: int | None) -> PreTrainedModel:
    """Converts the state dict of OpenAI's CLIP to a `CLIPModel`, or with a ResNet to a `VisionTextDualEncoderModel`.
    `sizes` are `text_heads` and `vision_heads`, by default one for every 64 of the width, as in CLIP (in a ResNet, of
    the attention that pools its last stage), and `end_token_id`, by default the last id of the native vocabulary.

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
    for old, value in weights.items():
        if is_resnet and old.startswith("visual."):
            named[old.replace("visual.", "vision_model.", 1)] = value
        elif not _NOT_WEIGHTS.fullmatch(old):
            name = old
            for pattern, new in _RENAMINGS:
                name = re.sub(pattern, new, name)
            if joined := _IN_PROJECTION.fullmatch(name):
                sides = zip("qkv", value.chunk(3), strict=True)
                named |= {f"{joined[1]}self_attn.{side}_proj.{joined[2]}": share for side, share in sides}
            else:
                named[name] = value.T if old in _TRANSPOSED else value
    return named


def _native_config(
    weights: dict[str, Tensor],
    text_heads: int | None = None,
    vision_heads: int | None = None,
    end_token_id: int | None = None,
) -> PreTrainedConfig:
    vocab_size, width = weights["token_embedding.weight"].shape
    projection_dim = weights["text_projection"].shape[1]
    text = _transformer(weights, "transformer.", width, text_heads) | {
        "vocab_size": vocab_size,
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
    width, channels, patch_size, _ = weights["visual.conv1.weight"].shape
    side = round((len(weights["visual.positional_embedding"]) - 1) ** 0.5)
    vision = _transformer(weights, "visual.transformer.", width, vision_heads)
    vision |= {"num_channels": channels, "patch_size": patch_size, "image_size": patch_size * side}
    return CLIPConfig(text_config=text, vision_config=vision, projection_dim=projection_dim)


def _transformer(weights: dict[str, Tensor], prefix: str, width: int, heads: int | None) -> dict[str, int]:
    return {
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_hidden_layers": _layer_count(weights, rf"{re.escape(prefix)}resblocks\.(\d+)\."),
        "num_attention_heads": heads or width // 64,
    }


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


def read_weights(file: Path) -> dict[str, Tensor]:
    """Returns the float32 state dict of a safetensors file, of a file written by `torch.save` (read with weights-only
    unpickling, also one level down), or of OpenAI's TorchScript archives, which hold code and a file of constants."""
    members: list[str] = []
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                members = archive.namelist()
        if file.suffix == ".safetensors":
            held: Any = load_file(file)
        elif any(name.endswith("/constants.pkl") for name in members):
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

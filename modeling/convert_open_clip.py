"""Converts checkpoints of open_clip, and the towers of timm in them, to models of transformers, weight for weight.

settings = open_clip_settings("ViT-B-32")  # configuration.open_clip
model = model_from_open_clip(settings, read_weights(Path("open_clip_model.safetensors")))

What a checkpoint becomes follows from its towers:

CLIP's two towers              `CLIPModel`
CLIP's text tower, a ResNet    `VisionTextDualEncoderModel` of a `ClipResNetModel` and a `CLIPTextModel`
SigLIP's two towers            `SiglipModel`, of SigLIP 2 too, whose images have one size
any others                     `EtclModel`: a text encoder of transformers (XLM-R, RoBERTa, the encoders of mT5 and
                               NLLB), a text tower that is read at its last token, an image tower of SigLIP's kind, or
                               a ConvNeXt

Names and settings of architectures are in `configuration.open_clip`.
"""

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    CLIPConfig,
    CLIPModel,
    CLIPTextConfig,
    CLIPVisionConfig,
    ConvNextConfig,
    PreTrainedConfig,
    PreTrainedModel,
    SiglipConfig,
    SiglipModel,
    SiglipTextConfig,
    SiglipVisionConfig,
    VisionTextDualEncoderConfig,
    VisionTextDualEncoderModel,
)

from ..configuration.configuration_etcl import EtclConfig
from ..configuration.errors import ModelFolderError
from ..configuration.open_clip import POOLERS, SIGLIP_TOWER, OpenClipSettings, check_open_clip
from ..configuration.pretrained import load_config
from .convert_mla import clip_names, layer_count, resnet_config
from .modeling_dual_encoder import MIN_TEMPERATURE
from .modeling_etcl import EtclModel

# timm's ViTs of SigLIP: those with an approximate GELU, and the numbers of attention heads, which no weight shows.
_APPROXIMATE = re.compile("base_patch32|large_patch16_siglip_512|so400m_patch16|giantopt")
_SIGLIP_HEADS = {"base": 12, "large": 16, "so400m": 16, "giantopt": 16}
# Buffers that earlier versions of open_clip and transformers saved, and numbers in OpenAI's archives.
_NOT_WEIGHTS = re.compile(
    r"(.*\.)?(attn_mask|position_ids|embed_positions\.weights|input_resolution|context_length|vocab_size)"
)


def model_from_open_clip(
    settings: OpenClipSettings, weights: dict[str, Tensor], *, text_model: str | Path | None = None
) -> PreTrainedModel:
    """Converts a checkpoint of open_clip to a dual encoder of transformers or babelens.

    Args:
        settings: its architecture.
        weights: its state dict; the sizes follow from it.
        text_model: folder or Hub id of the text encoder whose configuration is read, for architectures with one of
            transformers; by default the one that the architecture names. Its weights are not read.

    Returns:
        The model, in evaluation mode, whose embeddings are those of open_clip.

    Raises:
        ModelFolderError: for weights of another architecture, or a text encoder that cannot be found.
        ModelKindError: for an architecture that transformers has no classes for.

    Examples:
        >>> weights = read_weights(Path("open_clip_pytorch_model.bin"))
        >>> model = model_from_open_clip(open_clip_settings("ViT-B-32"), weights)
    """
    check_open_clip(settings)
    weights = _without_layer_scales({k: v for k, v in weights.items() if not _NOT_WEIGHTS.fullmatch(k)})
    try:
        image, text = _image_tower(settings, weights), _text_tower(settings, weights, text_model)
        scales: dict[str, Tensor] = {name: weights[name] for name in ("logit_scale", "logit_bias") if name in weights}
        model, named = _assembled(settings, image, text, scales)
    except (KeyError, ValueError, IndexError, RuntimeError, TypeError, AttributeError, ArithmeticError) as error:
        # The last three are of settings in a file, such as a text in the place of a number.
        raise ModelFolderError(f"these are no weights of open_clip's {settings.name}: {error}") from error
    _load(model, named, settings.name)
    return model.eval()


# ---- The towers ----


@dataclass
class _Tower:
    """A tower, its weights by their names within it, and those of its projection by their places in the head."""

    config: PreTrainedConfig
    weights: dict[str, Tensor]
    head: list[Tensor] = field(default_factory=list)
    pooling: str = "pooler"


def _image_tower(settings: OpenClipSettings, weights: dict[str, Tensor]) -> _Tower:
    own = {name.removeprefix("visual."): value for name, value in weights.items() if name.startswith("visual.")}
    timm = settings.image.get("timm_model_name") or ""
    if found := SIGLIP_TOWER.fullmatch(timm):
        return _siglip_images(settings, own, _SIGLIP_HEADS[found[1]])
    if timm:
        return _convnext(own)
    named = clip_names({f"visual.{name}": value for name, value in own.items()})
    tower = {name.removeprefix("vision_model."): value for name, value in named.items() if "vision_model." in name}
    head = [named["visual_projection.weight"]]
    if isinstance(settings.image.get("layers"), list):
        return _Tower(resnet_config(weights, None), tower, head)
    width, channels, patch, _ = own["conv1.weight"].shape
    config = CLIPVisionConfig(
        hidden_size=width,
        intermediate_size=len(own["transformer.resblocks.0.mlp.c_fc.weight"]),
        projection_dim=settings.model["embed_dim"],
        num_hidden_layers=layer_count(own, r"transformer\.resblocks\.(\d+)\."),
        num_attention_heads=width // settings.image.get("head_width", 64),
        num_channels=channels,
        patch_size=patch,
        image_size=_image_size(settings, patch, len(own["positional_embedding"]) - 1),
        hidden_act=_activation(settings, {}),
    )
    return _Tower(config, tower, head)


def _image_size(settings: OpenClipSettings, patch: int, patches: int) -> int:
    """Returns the stated size if these are its patches: a rest at the edge makes none."""
    stated, side = settings.image.get("image_size"), round(patches**0.5)
    return stated if isinstance(stated, int) and stated // patch == side else patch * side


def _siglip_images(settings: OpenClipSettings, own: dict[str, Tensor], heads: int) -> _Tower:
    """timm's ViT with a pooling by attention, under SigLIP's names."""
    trunk = {name.removeprefix("trunk."): value for name, value in own.items()}
    patches = trunk["patch_embed.proj.weight"]
    named: dict[str, Tensor] = {}
    parts = {"attn.proj": "self_attn.out_proj", "norm1": "layer_norm1", "norm2": "layer_norm2"}
    pool = {"proj": "attention.out_proj", "norm": "layernorm"}
    for name, value in trunk.items():
        part, _, kind = name.rpartition(".")
        if match := re.fullmatch(r"blocks\.(\d+)\.(.+)", part):
            layer = f"encoder.layers.{match[1]}"
            if match[2] == "attn.qkv":
                for side, share in zip("qkv", value.chunk(3), strict=True):
                    named[f"{layer}.self_attn.{side}_proj.{kind}"] = share
            else:
                named[f"{layer}.{parts.get(match[2], match[2])}.{kind}"] = value
        elif part == "attn_pool.q":
            named[f"head.attention.in_proj_{kind}"] = torch.cat([value, trunk[f"attn_pool.kv.{kind}"]])
        elif part != "attn_pool.kv" and part.startswith("attn_pool."):
            inner = part.removeprefix("attn_pool.")
            named[f"head.{pool.get(inner, inner)}.{kind}"] = value
        elif part in ("patch_embed.proj", "norm"):
            named[f"{'post_layernorm' if part == 'norm' else 'embeddings.patch_embedding'}.{kind}"] = value
    named["embeddings.position_embedding.weight"] = trunk["pos_embed"][0]  # [1, patches, width]
    named["head.probe"] = trunk["attn_pool.latent"]
    config = SiglipVisionConfig(
        hidden_size=len(patches),
        intermediate_size=len(trunk["blocks.0.mlp.fc1.weight"]),
        num_hidden_layers=layer_count(trunk, r"blocks\.(\d+)\."),
        num_attention_heads=heads,
        num_channels=patches.shape[1],
        patch_size=patches.shape[-1],
        image_size=_image_size(settings, patches.shape[-1], trunk["pos_embed"].shape[1]),
        layer_norm_eps=1e-6,
        # As timm has them; files of SigLIP for transformers state the approximate function for all.
        hidden_act="gelu_pytorch_tanh" if _APPROXIMATE.search(settings.image["timm_model_name"]) else "gelu",
    )
    return _Tower(config, named)


def _convnext(own: dict[str, Tensor]) -> _Tower:
    """timm's ConvNeXt under the names of transformers."""
    named: dict[str, Tensor] = {}
    parts = {"conv_dw": "dwconv", "norm": "layernorm", "mlp.fc1": "pwconv1", "mlp.fc2": "pwconv2"}
    outside = {"stem.0": "embeddings.patch_embeddings", "stem.1": "embeddings.layernorm", "head.norm": "layernorm"}
    for name, value in own.items():
        part, _, kind = name.removeprefix("trunk.").rpartition(".")
        if name == "head.proj.weight":
            continue
        if match := re.fullmatch(r"stages\.(\d+)\.blocks\.(\d+)\.?(.*)", part):
            layer = f"encoder.stages.{match[1]}.layers.{match[2]}"
            named[f"{layer}.layer_scale_parameter" if kind == "gamma" else f"{layer}.{parts[match[3]]}.{kind}"] = value
        elif match := re.fullmatch(r"stages\.(\d+)\.downsample\.(\d)", part):
            named[f"encoder.stages.{match[1]}.downsampling_layer.{match[2]}.{kind}"] = value
        else:
            named[f"{outside[part]}.{kind}"] = value
    stages = range(layer_count(own, r"trunk\.stages\.(\d+)\."))
    config = ConvNextConfig(
        depths=[layer_count(own, rf"trunk\.stages\.{stage}\.blocks\.(\d+)\.") for stage in stages],
        hidden_sizes=[len(own[f"trunk.stages.{stage}.blocks.0.norm.weight"]) for stage in stages],
        layer_norm_eps=1e-6,
    )
    return _Tower(config, named, [own["head.proj.weight"]])


def _text_tower(settings: OpenClipSettings, weights: dict[str, Tensor], text_model: str | Path | None) -> _Tower:
    given = settings.text
    own = {
        name.removeprefix("text."): value
        for name, value in weights.items()
        if not name.startswith("visual.") and name not in ("logit_scale", "logit_bias")
    }
    if given.get("hf_model_name"):
        return _hf_texts(given, own, load_config(text_model or given["hf_model_name"]))
    is_siglip = bool(given.get("no_causal_mask"))
    head = [own.pop("text_projection.weight"), own.pop("text_projection.bias")] if given.get("proj_bias") else []
    named = clip_names(own)
    if "text_projection.weight" in named:
        head = [named["text_projection.weight"]]
    tower = {name.removeprefix("text_model."): value for name, value in named.items() if "text_model." in name}
    words, width = own["token_embedding.weight"].shape
    sizes = {
        "vocab_size": words,
        "hidden_size": width,
        "intermediate_size": len(own["transformer.resblocks.0.mlp.c_fc.weight"]),
        "num_hidden_layers": layer_count(own, r"transformer\.resblocks\.(\d+)\."),
        "num_attention_heads": given.get("heads", 8),
        "max_position_embeddings": len(own["positional_embedding"]),
        "hidden_act": _activation(settings, given.get("act_kwargs") or {}),
        "layer_norm_eps": (given.get("norm_kwargs") or {}).get("eps", 1e-5),
    }
    if is_siglip:
        space = settings.model["embed_dim"]
        head = head or [torch.eye(width), torch.zeros(width)]  # proj_type="none"
        tower |= {"head.weight": head[0], "head.bias": head[1]}
        return _Tower(SiglipTextConfig(projection_size=space, **sizes), tower)
    is_last = given.get("pool_type") == "eos"
    end = given.get("eos_id", 2) if is_last else words - 1
    sizes |= {"bos_token_id": 0 if is_last else words - 2, "eos_token_id": end}
    config = CLIPTextConfig(projection_dim=settings.model["embed_dim"], **sizes)
    return _Tower(config, tower, head, "eos" if is_last else "pooler")


def _hf_texts(given: dict[str, Any], own: dict[str, Tensor], config: PreTrainedConfig) -> _Tower:
    """A text encoder of transformers, of which an encoder-decoder has the encoder alone."""
    head = [value for name, value in sorted(own.items()) if name.startswith("proj.")]
    tower = {name.removeprefix("transformer."): v for name, v in own.items() if name.startswith("transformer.")}
    pooling = POOLERS[given.get("hf_pooler_type") or "mean_pooler"]
    if pooling == "pooler" and config.is_encoder_decoder:
        pooling = "cls"  # it has no pooling layer: the state of the first token, NLLB's of the language
    if config.model_type in ("t5", "mt5", "umt5"):
        tower = {f"encoder.{name}": value for name, value in tower.items()}
        tower["shared.weight"] = tower["encoder.embed_tokens.weight"]
    return _Tower(config, tower, head, pooling)


def _activation(settings: OpenClipSettings, given: dict[str, Any]) -> str:
    if settings.model.get("quick_gelu"):
        return "quick_gelu"
    return "gelu_pytorch_tanh" if given.get("approximate") == "tanh" else "gelu"


def _without_layer_scales(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Multiplies the scale of a layer's output into the weights of the layer: CLIP has none of its own."""
    found = dict(weights)
    scaled = {"ls_1.gamma": "attn.out_proj", "ls_2.gamma": "mlp.c_proj"}
    for name, scale in weights.items():
        for suffix, part in scaled.items():
            if name.endswith(f".{suffix}"):
                layer = name.removesuffix(suffix) + part
                found[f"{layer}.weight"] = weights[f"{layer}.weight"] * scale[:, None]
                found[f"{layer}.bias"] = weights[f"{layer}.bias"] * scale
                del found[name]
    return found


# ---- The model of both ----


def _assembled(
    settings: OpenClipSettings, image: _Tower, text: _Tower, scales: dict[str, Tensor]
) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    """Returns an untrained model, and its weights by their names."""
    kinds = image.config.model_type, text.config.model_type
    space = settings.model["embed_dim"]
    named = {f"vision_model.{name}": value for name, value in image.weights.items()}
    named |= {f"text_model.{name}": value for name, value in text.weights.items()}
    configs: dict[str, Any] = {"text_config": text.config.to_dict(), "vision_config": image.config.to_dict()}
    scale = scales["logit_scale"]
    if kinds == ("siglip_vision_model", "siglip_text_model"):
        bias = scales.get("logit_bias", torch.zeros(1))
        return SiglipModel(SiglipConfig(**configs)), named | {
            "logit_scale": scale.reshape(1),
            "logit_bias": bias.reshape(1),
        }
    if kinds[1] == "clip_text_model" and text.pooling == "pooler" and kinds[0] in ("clip_vision_model", "clip_resnet"):
        named |= {"text_projection.weight": text.head[0], "visual_projection.weight": image.head[0]}
        named["logit_scale"] = scale.reshape(())
        if kinds[0] == "clip_vision_model":
            return CLIPModel(CLIPConfig(**configs, projection_dim=space)), named
        both = VisionTextDualEncoderConfig.from_vision_text_configs(image.config, text.config, projection_dim=space)
        return VisionTextDualEncoderModel(both), named
    return _two_towers(image, text, space, float(scale), named)


def _two_towers(
    image: _Tower, text: _Tower, space: int, scale: float, named: dict[str, Tensor]
) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    temperature = max(math.exp(-scale), MIN_TEMPERATURE)
    config = EtclConfig(
        text_config=text.config,
        vision_config=image.config,
        text_pooling=text.pooling,
        image_head=bool(image.head),
        projection_dim=space,
        head_bias=False,
        text_hidden_size=len(text.head[0]) if len(text.head) > 1 else None,
        temperature_init_value=temperature,
    )
    places = ["0.weight", "3.weight"] if len(text.head) > 1 else ["weight"]
    named |= {f"text_projection.{place}": value for place, value in zip(places, text.head, strict=True)}
    if image.head:
        named["image_projection.weight"] = image.head[0]
    named["similarity.temperature"] = torch.tensor(temperature)
    return EtclModel(config), named


def _load(model: PreTrainedModel, named: dict[str, Tensor], called: str) -> None:
    try:
        missing, unknown = model.load_state_dict(named, strict=False)
    except RuntimeError as error:  # of other shapes
        raise ModelFolderError(f"these are no weights of open_clip's {called}: {error}") from error
    if missing or unknown:
        raise ModelFolderError(
            f"these are no weights of open_clip's {called}: missing {missing[:5]}, unknown {unknown[:5]}"
        )

"""The text tower of a dual encoder that acquires languages: its parts, and what it looks for in the token ids."""

from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedConfig, PreTrainedModel, initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.configuration_mla_base import REDUCTION, ClipResNetConfig
from ..configuration.text_towers import TextTower
from ..utils.errors import InputError, ModelKindError, did_you_mean


@dataclass(frozen=True)
class TowerParts:
    """The text tower of a dual encoder, and its parts that MLA wraps.

    Attributes:
        tower: the module that is given the token ids.
        embeddings: its embedding, or its table alone.
        blocks: its blocks, a list.
        embedding_width: width of the rows of its table.
        width: width of its states.
    """

    tower: nn.Module
    embeddings: nn.Module
    blocks: nn.ModuleList
    embedding_width: int
    width: int


def tower_parts(model: nn.Module, where: TextTower) -> TowerParts:
    """Finds the text tower of a dual encoder.

    Args:
        model: the dual encoder; its layers may be wrapped already.
        where: where it has its parts.

    Raises:
        ModelKindError: if the model is no dual encoder, or lacks a part.
    """
    needed = ("get_text_features", "get_image_features")
    if missing := [name for name in needed if not hasattr(model, name)]:
        raise ModelKindError(f"{type(model).__name__} is no dual encoder: it lacks {' and '.join(missing)}")
    if not (hasattr(model, "logit_scale") or hasattr(model, "temperature")):
        raise ModelKindError(f"{type(model).__name__} has no temperature: neither logit_scale nor temperature")
    tower = _module(model, where.path, "path")
    embeddings, blocks = (_module(tower, getattr(where, name), name) for name in ("embeddings", "blocks"))
    if not isinstance(blocks, nn.ModuleList):
        raise ModelKindError(
            f"{where.path}.{where.blocks} of {type(model).__name__} is a {type(blocks).__name__}, and not a list of "
            "blocks (nn.ModuleList)"
        )
    plain = getattr(embeddings, "base_layer", embeddings)
    if not isinstance(plain, nn.Embedding) and "inputs_embeds" not in signature(plain.forward).parameters:
        raise ModelKindError(
            f"{where.path}.{where.embeddings} of {type(model).__name__} is neither a table (nn.Embedding) nor takes "
            "inputs_embeds instead of token ids"
        )
    rows = table_of(plain).embedding_dim
    width = getattr(getattr(model.config, "text_config", None), "hidden_size", None) or rows
    return TowerParts(tower, embeddings, blocks, rows, width)


def _module(parent: nn.Module, path: str, key: str) -> nn.Module:
    """Returns the module at a path below another."""
    found = parent
    for name in path.split("."):
        children = dict(found.named_children())
        if name not in children:
            raise ModelKindError(
                f"{type(parent).__name__} has no module {path!r}, which text_tower states as {key}: "
                f"{type(found).__name__} has {', '.join(children) or 'no modules'}{did_you_mean(name, children)}"
            )
        found = children[name]
    return found


def table_of(embeddings: nn.Module) -> nn.Embedding:
    """Returns the table of an embedding: by its usual names, else the one with the most rows."""
    tables = {name: part for name, part in embeddings.named_modules() if isinstance(part, nn.Embedding)}
    usual = [tables[name] for name in ("", "word_embeddings", "token_embedding", "tok_embeddings") if name in tables]
    if not tables:
        raise ModelKindError(f"{type(embeddings).__name__} has no table (nn.Embedding)")
    return usual[0] if usual else max(tables.values(), key=lambda table: table.num_embeddings)


@dataclass(frozen=True)
class NativeMarks:
    """Ids of the native vocabulary that a tower itself looks for in the token ids.

    Attributes:
        end: the end-of-text token, at which the tower pools, or `None` if it does not pool at a token.
        padding: the padding token, if the tower may find the padding by its id, or `None`.
    """

    end: int | None = None
    padding: int | None = None

    @property
    def filler(self) -> int:
        """Id of all other tokens. It is small, because CLIP with `eos_token_id=2` pools at the greatest id."""
        return next(number for number in range(3) if number not in (self.end, self.padding))

    def __bool__(self) -> bool:
        return self.end is not None or self.padding is not None


def native_marks(config: PreTrainedConfig, tower: nn.Module, where: TextTower) -> NativeMarks:
    """Returns what a text tower looks for in the token ids.

    Args:
        config: configuration of the dual encoder.
        tower: the text tower, which may have a configuration of its own.
        where: what is known of it.

    Raises:
        ModelKindError: if a tower is declared to pool at its end-of-text token, and no configuration has its id.
    """
    configs = [getattr(tower, "config", None), getattr(config, "text_config", None), config]

    def stated(name: str) -> int | None:
        return next((value for each in configs if (value := getattr(each, name, None)) is not None), None)

    if not where.is_declared:
        return NativeMarks(config.text_config.eos_token_id if where.pooling == "end" else None)
    end = stated("eos_token_id") if where.pooling == "end" else None
    if where.pooling == "end" and end is None:
        raise ModelKindError(
            "text_tower: pooling='end' is at the end-of-text token, but no configuration of the model has its "
            "eos_token_id"
        )
    padding = stated("pad_token_id")
    return NativeMarks(end, None if padding == end else padding)


# ---- ResNets of CLIP ----
# The ResNets of OpenAI's CLIP as a vision backbone of transformers (Radford et al. 2021, section 2.4).
#
# They differ from an ordinary ResNet in three ways: the stem has three convolutions, an average pooling goes before
# each convolution with a stride, and attention pools the last stage, by a query from its mean. Modules have the names
# of OpenAI's checkpoints, so that their weights are loaded as they are (`convert_mla`).

_EXPANSION = 4  # outputs of a block by its inner channels


def _conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class ClipResNetBlock(nn.Module):
    """Three convolutions beside a shortcut. [N, inputs, H, W] -> [N, 4 * channels, H / stride, W / stride]"""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        outputs = _EXPANSION * channels
        self.conv1, self.bn1 = _conv(inputs, channels), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = _conv(channels, channels, 3), nn.BatchNorm2d(channels)
        self.conv3, self.bn3 = _conv(channels, outputs), nn.BatchNorm2d(outputs)
        self.pool = nn.AvgPool2d(stride)
        is_changed = stride > 1 or inputs != outputs
        # OpenAI's names are "0" and "1": the pooling before them has no weights.
        self.downsample = nn.Sequential(_conv(inputs, outputs), nn.BatchNorm2d(outputs)) if is_changed else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x)).relu()
        y = self.pool(self.bn2(self.conv2(y)).relu())
        y = self.bn3(self.conv3(y))
        return (y + (x if self.downsample is None else self.downsample(self.pool(x)))).relu()


class ClipResNetAttentionPool(nn.Module):
    """Pools a feature map by attention; the query is its mean. [N, C, H, W] -> [N, d]"""

    def __init__(self, config: ClipResNetConfig) -> None:
        super().__init__()
        width, side = config.pooling_width, config.image_size // REDUCTION
        self.num_heads = config.num_attention_heads
        self.positional_embedding = nn.Parameter(torch.empty(side**2 + 1, width))
        self.k_proj, self.q_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))
        self.c_proj = nn.Linear(width, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(2).transpose(1, 2)  # [N, C, H, W] -> [N, H * W, C]
        x = torch.cat([x.mean(1, keepdim=True), x], 1) + self.positional_embedding
        query, key, value = self.q_proj(x[:, :1]), self.k_proj(x), self.v_proj(x)
        heads = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in (query, key, value))
        pooled = scaled_dot_product_attention(*heads)  # [N, heads, 1, C / heads]
        return self.c_proj(pooled.flatten(1))


class ClipResNetModel(PreTrainedModel):
    """An image tower of OpenAI's ResNet CLIPs: RN50, RN101, RN50x4, RN50x16, RN50x64.

    Examples:
        >>> model = ClipResNetModel(ClipResNetConfig())
        >>> model(torch.zeros(1, 3, 224, 224)).pooler_output  # [1, 1024]
    """

    config_class = ClipResNetConfig
    base_model_prefix = "clip_resnet"
    main_input_name = "pixel_values"
    input_modalities = ("image",)

    def __init__(self, config: ClipResNetConfig) -> None:
        super().__init__(config)
        width = config.width
        self.conv1, self.bn1 = _conv(config.num_channels, width // 2, 3, 2), nn.BatchNorm2d(width // 2)
        self.conv2, self.bn2 = _conv(width // 2, width // 2, 3), nn.BatchNorm2d(width // 2)
        self.conv3, self.bn3 = _conv(width // 2, width, 3), nn.BatchNorm2d(width)
        inputs = width
        for stage, depth in enumerate(config.depths):
            channels, stride = width * 2**stage, 1 if stage == 0 else 2
            blocks = [ClipResNetBlock(inputs, channels, stride)]
            inputs = _EXPANSION * channels
            blocks += [ClipResNetBlock(inputs, channels, 1) for _ in range(depth - 1)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.attnpool = ClipResNetAttentionPool(config)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, ClipResNetBlock):
            init.zeros_(module.bn3.weight)
        elif isinstance(module, ClipResNetAttentionPool):
            deviation = self.config.pooling_width**-0.5
            for layer in (module.k_proj, module.q_proj, module.v_proj, module.c_proj):
                init.normal_(layer.weight, std=deviation)
            init.normal_(module.positional_embedding, std=deviation)

    @can_return_tuple
    def forward(
        self, pixel_values: Tensor, output_hidden_states: bool | None = None, **kwargs: Any
    ) -> BaseModelOutputWithPooling:
        """Computes the features of images.

        Args:
            pixel_values ([N, 3, H, W]): images of the configuration's size.
            output_hidden_states: whether to return the feature maps of the stem and of each stage.
            kwargs: `output_attentions`, of which a ResNet has none.

        Returns:
            `last_hidden_state` [N, C, H / 32, W / 32], the feature map of the last stage, and `pooler_output` [N, d],
            which is not normalized.

        Raises:
            InputError: for images of another size, and for attentions.
        """
        size = self.config.image_size
        if pixel_values.shape[-2:] != (size, size):
            raise InputError(f"images of {list(pixel_values.shape[-2:])} pixels: this tower reads {size} x {size}")
        if any(kwargs.values()):
            raise InputError(f"{', '.join(kwargs)}: a ResNet has no such output")
        x = self.bn1(self.conv1(pixel_values)).relu()
        x = self.bn2(self.conv2(x)).relu()
        x = nn.functional.avg_pool2d(self.bn3(self.conv3(x)).relu(), 2)
        states = [x]
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
            states.append(x)
        return BaseModelOutputWithPooling(
            last_hidden_state=x,
            pooler_output=self.attnpool(x),
            hidden_states=tuple(states) if output_hidden_states else None,
        )


__all__ = ["ClipResNetModel"]

"""The ResNets of OpenAI's CLIP as a vision backbone (Radford et al. 2021, section 2.4): a stem of three convolutions,
an average pooling before each convolution with a stride, and attention that pools the last stage, with its mean as the
query. Modules have the names in OpenAI's checkpoints, so weights load without renaming (`convert_mla`)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoModel, PreTrainedModel, initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.configuration_mla import RESNET_REDUCTION, ClipResNetConfig

_EXPANSION = 4  # outputs of a block per inner channel


def _conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class ClipResNetBlock(nn.Module):
    """Three convolutions with a shortcut. [N, inputs, H, W] -> [N, 4 * channels, H / stride, W / stride]"""

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
        width, side = config.pooling_width, config.image_size // RESNET_REDUCTION
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
        """Returns the features of images [N, 3, H, W]: `pooler_output` [N, d], not normalized, and the last stage's
        map, `last_hidden_state` [N, C, H / 32, W / 32]. Hidden states are the maps of the stem and of each stage."""
        size = self.config.image_size
        if pixel_values.shape[-2:] != (size, size):
            raise ValueError(f"images of {list(pixel_values.shape[-2:])} pixels: this tower reads {size} x {size}")
        x = self.bn1(self.conv1(pixel_values)).relu()
        x = self.bn2(self.conv2(x)).relu()
        x = nn.functional.avg_pool2d(self.bn3(self.conv3(x)).relu(), 2)
        states = [x]
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
            states.append(x)
        return BaseModelOutputWithPooling(x, self.attnpool(x), tuple(states) if output_hidden_states else None)


# Lets transformers load a `VisionTextDualEncoderModel` with such an image tower.
AutoModel.register(ClipResNetConfig, ClipResNetModel, exist_ok=True)

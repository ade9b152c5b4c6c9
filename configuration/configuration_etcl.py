"""ETCL's configuration (Lee et al. 2022).

Both towers are any transformers configuration. The defaults are the paper's: EfficientNet-B7 without its head
convolution, BERT-base with LaBSE's vocabulary of 501 153 word pieces, 64 tokens (section 3.3).
"""

from typing import ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .feature_width import check_projection_dim, image_width
from .hub_code import HubCodeMixin
from .strict_config import StrictConfig

EFFICIENTNET_B7 = {"width_coefficient": 2.0, "depth_coefficient": 3.1, "image_size": 289, "drop_connect_rate": 0.2}
BERT_BASE_LABSE = {"vocab_size": 501_153, "max_position_embeddings": 64}


@strict
class EtclConfig(HubCodeMixin, StrictConfig):
    """
    Args:
        text_config: The text tower, any transformers text encoder; a dict names its `model_type` (default `bert`).
        vision_config: The image tower, any transformers vision backbone (default `align_vision_model`, EfficientNet
            without its head convolution). Its pooled width is the width of the shared space: only the text side is
            projected.
        temperature_init_value: Initial value of the learned temperature of images and texts, which divides the
            cosines (section 3.3). Cosines are divided by at least 0.01, however low it is learned or begins.
        text_text_temperature: Fixed temperature of translation pairs, that of MURAL's paper; `None` shares the learned
            one.
        triplet_text_temperature: Fixed temperature of the two texts of a triplet; `None` shares the learned one, as
            the equations have it (section 3.1).
        text_text_margin: Additive margin, subtracted from the cosine of the right translation (section 3.3).
        label_smoothing: Probability spread over all classes in every loss (section 3.3).
        initializer_range: Standard deviation of the normal initialisation of the text projection.
    """

    model_type = "etcl"
    auto_classes = ("AutoConfig",)
    sub_configs_defaults: ClassVar[dict[str, SubConfigSpec]] = {
        "text_config": SubConfigSpec(config_class=AutoConfig, model_type="bert", init_kwargs=BERT_BASE_LABSE),
        "vision_config": SubConfigSpec(
            config_class=AutoConfig, model_type="align_vision_model", init_kwargs=EFFICIENTNET_B7
        ),
    }

    text_config: dict | PreTrainedConfig | None = None
    vision_config: dict | PreTrainedConfig | None = None
    temperature_init_value: float | int = 1.0
    text_text_temperature: float | int | None = 0.01
    triplet_text_temperature: float | int | None = None
    text_text_margin: float | int = 0.3
    label_smoothing: float | int = 0.1
    initializer_range: float | int = 0.02

    def __post_init__(self, **kwargs: object) -> None:
        for name in ("temperature_init_value", "text_text_temperature", "triplet_text_temperature"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name}={value} must be positive: it divides the cosines")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing={self.label_smoothing} is a probability below 1")
        width = kwargs.pop("projection_dim", None)
        super().__post_init__(**kwargs)
        check_projection_dim(self, width)

    @property
    def projection_dim(self) -> int:
        """The width of the shared space, which follows from the image tower."""
        return image_width(self.vision_config)


__all__ = ["EtclConfig"]

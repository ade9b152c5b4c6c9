"""Configuration of ETCL (Lee et al. 2022).

Each tower takes any suitable transformers configuration. The defaults are the paper's: EfficientNet-B7 without its
head convolution, BERT-base with LaBSE's vocabulary of 501 153 word pieces, and texts of 64 tokens (section 3.3).
"""

from typing import ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .feature_width import check_projection_dim, image_width
from .frozen_towers import checked_towers
from .hub_code import HubCodeMixin
from .strict_config import StrictConfig

EFFICIENTNET_B7 = {"width_coefficient": 2.0, "depth_coefficient": 3.1, "image_size": 289, "drop_connect_rate": 0.2}
BERT_BASE_LABSE = {"vocab_size": 501_153, "max_position_embeddings": 64}


@strict
class EtclConfig(HubCodeMixin, StrictConfig):
    """Configuration of an `EtclModel`.

    Args:
        text_config: Configuration of the text tower, any transformers text encoder, as an object or as a dictionary. A
            dictionary may name its `model_type`; the default is `bert`.
        vision_config: Configuration of the image tower, any transformers vision backbone. The default is
            `align_vision_model`, EfficientNet without its head convolution. The width of its pooled features is the
            width of the shared space, because only texts are projected.
        temperature_init_value: Initial value of the learned image-text temperature, by which the cosines are divided
            (section 3.3). Cosines are never divided by less than 0.01.
        text_text_temperature: Fixed temperature for translation pairs, by default that of MURAL's paper; `None` uses
            the learned one.
        triplet_text_temperature: Fixed temperature for the two texts of a triplet; `None` uses the learned one, as in
            the equations (section 3.1).
        text_text_margin: Margin that is subtracted from the cosine of a text and its translation (section 3.3).
        label_smoothing: Probability that every loss spreads evenly over all candidates (section 3.3).
        initializer_range: Standard deviation of the normal distribution that initializes the text projection.
        freeze: Towers that are frozen whenever the model is made or loaded, of `["image", "text"]`: they are not
            trained, and stay in evaluation mode. `["image"]` locks the image tower (Zhai et al. 2022, LiT).

    Raises:
        ValueError: if a key is unknown, or a value is impossible.

    Examples:
        >>> config = EtclConfig(text_config={"vocab_size": 8000}, label_smoothing=0.05)
        >>> model = EtclModel(config)
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
    freeze: list[str] | tuple[str, ...] = ()

    def __post_init__(self, **kwargs: object) -> None:
        self.freeze = checked_towers(self.freeze)
        for name in ("temperature_init_value", "text_text_temperature", "triplet_text_temperature"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name}={value} must be positive: it divides the cosines")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing={self.label_smoothing} must be a probability below 1")
        width = kwargs.pop("projection_dim", None)
        super().__post_init__(**kwargs)
        check_projection_dim(self, width)

    @property
    def projection_dim(self) -> int:
        """Width of the shared space, which the image tower determines."""
        return image_width(self.vision_config)


__all__ = ["EtclConfig"]

"""Configuration of ETCL (Lee et al. 2022), by default the paper's: EfficientNet-B7 without its head convolution,
BERT-base with LaBSE's vocabulary of 501 153 word pieces, and texts of 64 tokens (section 3.3)."""

from typing import ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig
from transformers.configuration_utils import SubConfigSpec

from .configuration_two_tower import TwoTowerConfig, check_positive, check_probabilities

EFFICIENTNET_B7 = {"width_coefficient": 2.0, "depth_coefficient": 3.1, "image_size": 289, "drop_connect_rate": 0.2}
BERT_BASE_LABSE = {"vocab_size": 501_153, "max_position_embeddings": 64}


@strict
class EtclConfig(TwoTowerConfig):
    """Configuration of an `EtclModel`. It also accepts the arguments of `TwoTowerConfig`.

    Args:
        temperature_init_value: Initial value of the learned divisor of image-text cosines, which is at least 0.01.
        text_text_temperature: Of translation pairs, such as MURAL's 0.01; `None` for the learned one, as for triplets.
        text_text_margin: Subtracted from the cosine of a text and its translation (section 3.3).
        label_smoothing: Probability that each softmax spreads evenly over all candidates (section 3.3).
    """

    model_type = "etcl"
    auto_classes = ("AutoConfig",)
    sub_configs_defaults: ClassVar[dict[str, SubConfigSpec]] = {
        "text_config": SubConfigSpec(AutoConfig, "bert", BERT_BASE_LABSE),
        "vision_config": SubConfigSpec(AutoConfig, "align_vision_model", EFFICIENTNET_B7),
    }

    temperature_init_value: float | int = 1.0
    text_text_temperature: float | int | None = None
    text_text_margin: float | int = 0.3
    label_smoothing: float | int = 0.1

    def __post_init__(self, **kwargs: object) -> None:
        check_positive(self, "temperature_init_value", "text_text_temperature")
        check_probabilities(label_smoothing=self.label_smoothing, below_one=True)
        super().__post_init__(**kwargs)

"""Configuration of LIWE (Wehrmann et al. 2019), by default as in the authors' code. The large LIWE in SMALR's
comparison has `character_size=120` (Burns et al. 2020, figure 1)."""

from typing import ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .configuration_two_tower import DualEncoderConfig, check_positive, check_probabilities

# The first ids of every character vocabulary; known characters start at `SPECIAL_IDS`.
PADDING_ID, UNKNOWN_ID = 0, 1
SPECIAL_IDS = 2


@strict
class LiweConfig(DualEncoderConfig):
    """Configuration of a `LiweModel`. It also accepts the arguments of `DualEncoderConfig`.

    Args:
        vocab_size: Number of character ids for all languages, including padding and the unknown character.
        word_length, word_hidden_sizes: Characters read from each word, and widths of the convolutions over them.
        hidden_size: Width of each direction of the sentence encoder, and of the shared space.
        vision_config: A transformers vision backbone, to train on pixels; `None` for features of `image_feature_size`.
        temperature: Divides the cosines in `logits_per_image`; it has no effect on training.
        annealing_rate, translation_annealing_rate: Factor by which each training step shifts the hinge loss, between
            images and texts or between texts in two languages, from the sum over all negatives to the hardest one.
    """

    model_type = "liwe"
    auto_classes = ("AutoConfig",)
    sub_configs_defaults: ClassVar[dict[str, SubConfigSpec]] = {
        "vision_config": SubConfigSpec(AutoConfig, "align_vision_model", optional=True)
    }
    attribute_map: ClassVar[dict[str, str]] = {"projection_dim": "hidden_size"}

    vocab_size: int = 4096
    character_size: int = 24
    word_length: int = 26
    word_hidden_sizes: list[int] | tuple[int, ...] = (384, 448)
    word_size: int = 300
    hidden_size: int = 1024
    vision_config: dict | PreTrainedConfig | None = None
    image_feature_size: int = 2048
    temperature: float | int = 0.05
    margin: float | int = 0.2
    annealing_rate: float | int = 0.991
    translation_annealing_rate: float | int = 0.91
    translation_weight: float | int = 1.0
    initializer_range: float | int = 0.1

    def __post_init__(self, **kwargs: object) -> None:
        self.word_hidden_sizes = list(self.word_hidden_sizes)
        check_positive(self, "character_size", "word_length", "word_size", "hidden_size", "temperature")
        rates = ("annealing_rate", "translation_annealing_rate")
        check_probabilities(**{name: getattr(self, name) for name in rates})
        super().__post_init__(**kwargs)
        self.check_widths()

"""LIWE's configuration (Wehrmann et al. 2019), with the numbers of its authors' code; the large LIWE that SMALR is
compared with has `character_size=120` (Burns et al. 2020, figure 1)."""

from typing import ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig

from .hub_code import HubCodeMixin
from .strict_config import StrictConfig

# The first ids of every vocabulary of characters; known characters follow from `SPECIAL_IDS` on.
PADDING_ID, UNKNOWN_ID = 0, 1
SPECIAL_IDS = 2


@strict
class LiweConfig(HubCodeMixin, StrictConfig):
    """
    Args:
        vocab_size: Characters of all languages, with padding and the unknown one.
        character_size: Width of a character's embedding.
        word_length: Characters that are read of a word.
        word_hidden_sizes: Widths of the convolutions between a word's characters and its embedding.
        word_size: Width of a word's embedding.
        hidden_size: Width of each direction of the sentence encoder, and of the shared space.
        vision_config: A transformers vision backbone for training on pixels; `None`: images are given as features.
        image_feature_size: Width of the images' features; with a backbone, its own.
        temperature: Divides the cosines in `logits_per_image`; of no effect on training.
        margin: Of the hinge loss.
        annealing_rate: Of the hinge loss, the share that all negatives have, beside the hardest, falls by this factor
            with every step.
        translation_weight: Of the loss between texts in two languages about the same image.
        initializer_range: Standard deviation of the normal initialisation.
    """

    model_type = "liwe"
    auto_classes = ("AutoConfig",)
    sub_configs: ClassVar[dict[str, type[PreTrainedConfig]]] = {"vision_config": AutoConfig}
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
    translation_weight: float | int = 1.0
    initializer_range: float | int = 0.1

    def __post_init__(self, **kwargs: object) -> None:
        self.word_hidden_sizes = list(self.word_hidden_sizes)
        for name in ("character_size", "word_length", "word_size", "hidden_size", "temperature"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be positive")
        if not 0 <= self.annealing_rate <= 1:
            raise ValueError(f"annealing_rate={self.annealing_rate} must be a factor from 0 to 1")
        if isinstance(self.vision_config, dict):
            self.vision_config = AutoConfig.for_model(**self.vision_config)
        super().__post_init__(**kwargs)


__all__ = ["LiweConfig"]

"""MURAL's configuration (Jain et al. 2021), and ALIGN's (Jia et al. 2021), which is MURAL without its text-text task.

Both towers are any transformers configuration. The defaults are MURAL-BASE: EfficientNet-B5 without its head
convolution, BERT-base with a vocabulary of 250 000 word pieces, 64 tokens (paper, section 3.2 and appendix A.1).
"""

from typing import ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .feature_width import check_projection_dim, image_width
from .hub_code import HubCodeMixin
from .strict_config import StrictConfig
from .tasks import IMAGE_TEXT, TEXT_TEXT

EFFICIENTNET_B5 = {"width_coefficient": 1.6, "depth_coefficient": 2.2, "image_size": 289, "drop_connect_rate": 0.2}
BERT_BASE_250K = {"vocab_size": 250_000, "max_position_embeddings": 64}


@strict
class MuralConfig(HubCodeMixin, StrictConfig):
    """
    Args:
        text_config: The text tower, any transformers text encoder; a dict names its `model_type` (default `bert`).
            ELECTRA's encoder is BERT's with a factorised embedding (`embedding_size` < `hidden_size`), which is what
            MURAL-LARGE uses.
        vision_config: The image tower, any transformers vision backbone (default `align_vision_model`, EfficientNet
            without its head convolution). Its pooled width is the width of the shared space: only the text side is
            projected.
        tasks: The tasks the model has heads for: `image_text`, and `text_text` for MURAL; ALIGN has `["image_text"]`.
        temperature_init_value: Initial value of the learned image-text temperature, which divides the cosines (section
            3.1). Cosines are divided by at least 0.01, however low it is learned or begins.
        text_text_temperature: Fixed temperature of the text-text loss (section 3.1).
        text_text_margin: Additive margin, subtracted from the cosine of the right translation (section 3.1).
        initializer_range: Standard deviation of the normal initialisation of the task heads.
    """

    model_type = "mural"
    auto_classes = ("AutoConfig",)
    sub_configs_defaults: ClassVar[dict[str, SubConfigSpec]] = {
        "text_config": SubConfigSpec(config_class=AutoConfig, model_type="bert", init_kwargs=BERT_BASE_250K),
        "vision_config": SubConfigSpec(
            config_class=AutoConfig, model_type="align_vision_model", init_kwargs=EFFICIENTNET_B5
        ),
    }

    text_config: dict | PreTrainedConfig | None = None
    vision_config: dict | PreTrainedConfig | None = None
    tasks: list[str] | tuple[str, ...] = (IMAGE_TEXT, TEXT_TEXT)
    temperature_init_value: float | int = 1.0
    text_text_temperature: float | int = 0.01
    text_text_margin: float | int = 0.3
    initializer_range: float | int = 0.02

    def __post_init__(self, **kwargs: object) -> None:
        self.tasks = list(self.tasks)
        if IMAGE_TEXT not in self.tasks or not set(self.tasks) <= {IMAGE_TEXT, TEXT_TEXT}:
            raise ValueError(f"tasks={self.tasks}: MURAL has ['image_text', 'text_text'], ALIGN ['image_text']")
        for name in ("temperature_init_value", "text_text_temperature"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be positive: it divides the cosines")
        width = kwargs.pop("projection_dim", None)
        super().__post_init__(**kwargs)
        check_projection_dim(self, width)

    @property
    def projection_dim(self) -> int:
        """The width of the shared space, which follows from the image tower."""
        return image_width(self.vision_config)


__all__ = ["MuralConfig"]

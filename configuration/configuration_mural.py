"""Configuration of MURAL (Jain et al. 2021) and of ALIGN (Jia et al. 2021), which is MURAL without its text-text task.

Each tower takes any suitable transformers configuration. The defaults are MURAL-BASE: EfficientNet-B5 without its head
convolution, BERT-base with a vocabulary of 250 000 word pieces, and texts of 64 tokens (section 3.2, appendix A.1).
"""

from typing import ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .feature_width import check_projection_dim, image_width
from .frozen_towers import checked_towers
from .hub_code import HubCodeMixin
from .strict_config import StrictConfig
from .tasks import IMAGE_TEXT, TEXT_TEXT

EFFICIENTNET_B5 = {"width_coefficient": 1.6, "depth_coefficient": 2.2, "image_size": 289, "drop_connect_rate": 0.2}
BERT_BASE_250K = {"vocab_size": 250_000, "max_position_embeddings": 64}


@strict
class MuralConfig(HubCodeMixin, StrictConfig):
    """Configuration of a `MuralModel`.

    Args:
        text_config: Configuration of the text tower, any transformers text encoder, as an object or as a dictionary. A
            dictionary may name its `model_type`; the default is `bert`. MURAL-LARGE uses `electra`, which is BERT with
            a factorized embedding (`embedding_size` < `hidden_size`).
        vision_config: Configuration of the image tower, any transformers vision backbone. The default is
            `align_vision_model`, EfficientNet without its head convolution. The width of its pooled features is the
            width of the shared space, because only texts are projected.
        tasks: Tasks for which the model has heads: `["image_text", "text_text"]` for MURAL, `["image_text"]` for
            ALIGN.
        temperature_init_value: Initial value of the learned image-text temperature, by which the cosines are divided
            (section 3.1). Cosines are never divided by less than 0.01.
        text_text_temperature: Fixed temperature of the text-text loss (section 3.1).
        text_text_margin: Margin that is subtracted from the cosine of a text and its translation (section 3.1).
        initializer_range: Standard deviation of the normal distribution that initializes the heads.
        freeze: Towers that are frozen whenever the model is made or loaded, of `["image", "text"]`: they are not
            trained, and stay in evaluation mode. `["image"]` locks the image tower (Zhai et al. 2022, LiT).

    Raises:
        ValueError: if a key is unknown, or a value is impossible.

    Examples:
        >>> config = MuralConfig(text_config={"vocab_size": 8000, "num_hidden_layers": 4})
        >>> model = MuralModel(config)
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
    freeze: list[str] | tuple[str, ...] = ()

    def __post_init__(self, **kwargs: object) -> None:
        self.freeze = checked_towers(self.freeze)
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
        """Width of the shared space, which the image tower determines."""
        return image_width(self.vision_config)


__all__ = ["MuralConfig"]

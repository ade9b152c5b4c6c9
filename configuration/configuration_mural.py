"""Configuration of MURAL (Jain et al. 2021) and of ALIGN (Jia et al. 2021). The defaults are MURAL-BASE:
EfficientNet-B5 without its head convolution, BERT-base with 250 000 word pieces, and texts of 64 tokens (section 3.2,
appendix A.1). MURAL-LARGE's text tower is of type `electra`, BERT with a factorized embedding."""

from typing import ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig
from transformers.configuration_utils import SubConfigSpec

from .configuration_two_tower import IMAGE_TEXT, TEXT_TEXT, TwoTowerConfig, check_positive, check_probabilities

EFFICIENTNET_B5 = {"width_coefficient": 1.6, "depth_coefficient": 2.2, "image_size": 289, "drop_connect_rate": 0.2}
BERT_BASE_250K = {"vocab_size": 250_000, "max_position_embeddings": 64}


@strict
class MuralConfig(TwoTowerConfig):
    """Configuration of a `MuralModel`. It also accepts the arguments of `TwoTowerConfig`.

    Args:
        tasks: Tasks with a head: `["image_text", "text_text"]` for MURAL, `["image_text"]` for ALIGN.
        shared_text_head: Whether both tasks share one text head. With a frozen text tower, only then do translations
            help image retrieval, because nothing else of the texts is trained.
        temperature_init_value: Initial value of the learned divisor of image-text cosines, which is at least 0.01.
        label_smoothing: Probability that the image-text loss spreads evenly over all candidates. MURAL's paper has
            none; ALIGN trains with 0.1 (Jia et al. 2021, section 5), and so does transformers' `AlignModel`.
        text_text_temperature, text_text_margin: Fixed temperature, and margin subtracted from cosines (section 3.1).
    """

    model_type = "mural"
    auto_classes = ("AutoConfig",)
    sub_configs_defaults: ClassVar[dict[str, SubConfigSpec]] = {
        "text_config": SubConfigSpec(AutoConfig, "bert", BERT_BASE_250K),
        "vision_config": SubConfigSpec(AutoConfig, "align_vision_model", EFFICIENTNET_B5),
    }

    tasks: list[str] | tuple[str, ...] = (IMAGE_TEXT, TEXT_TEXT)
    shared_text_head: bool = False
    temperature_init_value: float | int = 1.0
    label_smoothing: float | int = 0.0
    text_text_temperature: float | int = 0.01
    text_text_margin: float | int = 0.3

    def __post_init__(self, **kwargs: object) -> None:
        self.tasks = list(self.tasks)
        if IMAGE_TEXT not in self.tasks or not set(self.tasks) <= {IMAGE_TEXT, TEXT_TEXT}:
            raise ValueError(f"tasks={self.tasks}: MURAL has ['image_text', 'text_text'], ALIGN ['image_text']")
        check_positive(self, "temperature_init_value", "text_text_temperature")
        check_probabilities(label_smoothing=self.label_smoothing, below_one=True)
        super().__post_init__(**kwargs)

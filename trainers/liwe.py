"""LIWE's trainer (Wehrmann et al. 2019)."""

from ..configuration.strict_config import IMAGE_TEXT
from .arguments import LiweTrainingArguments
from .word_dual_encoder import WordDualEncoderTrainer


class LiweTrainer(WordDualEncoderTrainer):
    """One task, `image_text`, on a caption corpus. During training, the loss turns from all negatives to the
    hardest."""

    task_weights = {IMAGE_TEXT: 1.0}
    arguments_class = LiweTrainingArguments

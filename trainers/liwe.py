"""LIWE's trainer (Wehrmann et al. 2019)."""

from typing import Any

from torch import Tensor, nn

from ..configuration.tasks import IMAGE_TEXT
from .arguments import LiweTrainingArguments
from .word_dual_encoder import WordDualEncoderTrainer


class LiweTrainer(WordDualEncoderTrainer):
    """One task, `image_text`; step by step, the loss turns from all negatives to the hardest."""

    task_weights = {IMAGE_TEXT: 1.0}
    arguments_class = LiweTrainingArguments

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        self.model.steps_trained = self.state.global_step
        return super().training_step(model, inputs, num_items_in_batch)

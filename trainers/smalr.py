"""SMALR's trainer: the latent vocabulary first, then words, sentences and images together (Burns et al. 2020)."""

from typing import Any

from transformers.trainer_utils import TrainOutput

from ..configuration.strict_config import IMAGE_TEXT, TEXT_TEXT
from .arguments import SmalrTrainingArguments
from .word_dual_encoder import WordDualEncoderTrainer


class SmalrTrainer(WordDualEncoderTrainer):
    """Tasks: `image_text` trains a `SmalrModel`. `text_text` alone learns from sentences of the same image: with a
    `SmalrLatentModel` the latent vocabulary; with a `SmalrModel` the projections of its words, while their vectors
    stay as they are (MULE's warm-up)."""

    task_weights = {IMAGE_TEXT: 1.0, TEXT_TEXT: 1.0}
    arguments_class = SmalrTrainingArguments

    def train_model(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> TrainOutput:
        embedding = getattr(self.model, "word_embedding", None)
        if embedding is None or IMAGE_TEXT in self.tasks:
            return super().train_model(resume_from_checkpoint, **kwargs)
        was_trained = embedding.specific.requires_grad
        embedding.specific.requires_grad_(False)
        try:
            return super().train_model(resume_from_checkpoint, **kwargs)
        finally:
            embedding.specific.requires_grad_(was_trained)

"""SMALR's trainer: the latent vocabulary first, then words, sentences and images together (Burns et al. 2020)."""

from ..configuration.tasks import IMAGE_TEXT, TEXT_TEXT
from .arguments import SmalrTrainingArguments
from .word_dual_encoder import WordDualEncoderTrainer


class SmalrTrainer(WordDualEncoderTrainer):
    """Tasks: `text_text` learns the latent vocabulary of a `SmalrLatentModel` from sentences of the same image;
    `image_text` trains a `SmalrModel`."""

    task_weights = {IMAGE_TEXT: 1.0, TEXT_TEXT: 1.0}
    arguments_class = SmalrTrainingArguments

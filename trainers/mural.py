"""MURAL's trainer: image-text matching and translation matching at once (section 3.1); ALIGN's, when only the first is
given data."""

from ..configuration.tasks import IMAGE_TEXT, TEXT_TEXT
from .contrastive import ContrastiveTrainer


class MuralTrainer(ContrastiveTrainer):
    """Tasks: `image_text` on a caption corpus or `image_text_pairs`, `text_text` on a translation corpus or
    `translation_pairs`.

    The text-text task weighs a tenth of the image-text task (appendix A.1, figure 7). The paper's optimiser is LAMB
    with a learning rate of 1e-3 for image-text and 1e-4 for text-text, linear warm-up over 10 000 of 600 000 steps and
    linear decay.
    """

    task_weights = {IMAGE_TEXT: 1.0, TEXT_TEXT: 0.1}

"""MURAL's trainer: image-text matching and translation matching at once (section 3.1). With data for image-text
matching alone, it trains ALIGN."""

from ..configuration.strict_config import IMAGE_TEXT, TEXT_TEXT
from .contrastive import ContrastiveTrainer


class MuralTrainer(ContrastiveTrainer):
    """Tasks: `image_text` on a caption corpus or `image_text_pairs`, `text_text` on a translation corpus or
    `translation_pairs`.

    The weight of the text-text task is a tenth of that of the image-text task (appendix A.1, figure 7). The paper uses
    LAMB with a learning rate of 1e-3 for image-text and 1e-4 for text-text, a linear warm-up over 10 000 of 600 000
    steps, and a linear decay.
    """

    task_weights = {IMAGE_TEXT: 1.0, TEXT_TEXT: 0.1}

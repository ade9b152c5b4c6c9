"""MURAL: multimodal, multitask representations across languages (Jain et al. 2021); ALIGN has no text-text task.

    L_i2t = -1/B sum_i log exp(s(x_i, y_i) / t) / sum_j exp(s(x_i, y_j) / t)
    L     = w_it (L_i2t + L_t2i) + w_tt (L_l2r + L_r2l)

Texts go through the linear head for matching images, or the one for matching translations (section 3.1).
"""

from typing import Any

from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.configuration_mural import MuralConfig
from ..configuration.configuration_two_tower import IMAGE_TEXT, TEXT_TEXT
from .modeling_dual_encoder import DualEncoderOutput
from .modeling_two_tower import TwoTowerModel


class MuralModel(TwoTowerModel):
    """MURAL, a dual encoder with a text head for each task; with only the task `image_text`, it is ALIGN.

    Examples:
        >>> model = AutoModel.from_pretrained("runs/mural")
        >>> inputs = processor(images=images, text=captions, language="de", return_tensors="pt")
        >>> logits = model(**inputs).logits_per_image  # [n_images, n_texts]
    """

    config_class = MuralConfig
    auto_classes = ("AutoModel", "AutoModelForZeroShotImageClassification")

    def __init__(self, config: MuralConfig) -> None:
        super().__init__(config)
        heads = [IMAGE_TEXT] if config.shared_text_head else config.tasks
        self.text_heads = nn.ModuleDict({task: self.new_text_head() for task in heads})
        self.post_init()

    @can_return_tuple
    def get_text_features(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        task: str = IMAGE_TEXT,
        text_features: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Embeds texts [N, T], or features [N, W] of the text tower, with the head of a task; translations are
        compared in the space of `"text_text"`. `pooler_output` [N, d] is not normalized."""
        return self.embed_text(input_ids, attention_mask, self._head(task), text_features, **kwargs)

    def _head(self, task: str) -> nn.Module:
        if task not in self.config.tasks:
            raise ValueError(f"this model has no head for {task!r}; its tasks are {list(self.config.tasks)}")
        return self.text_heads[IMAGE_TEXT if self.config.shared_text_head else task]

    def training_head(self, has_images: bool, has_translations: bool) -> nn.Module:
        if has_images and has_translations:
            raise ValueError("give images or translations, not both: each task has its own text head")
        return self._head(TEXT_TEXT if has_translations else IMAGE_TEXT)

    def _objective(self, output: DualEncoderOutput, **options: Any) -> Tensor:
        """Computes L_i2t + L_t2i on image-text pairs, or L_l2r + L_r2l on translation pairs (section 3.1). t is
        learned for images, and fixed for translations, where a margin m is subtracted from s(l_i, r_i)."""
        from .losses.contrastive import symmetric_contrastive_loss

        config, texts, translations = self.config, output.text_embeds, output.paired_text_embeds
        if texts is None or (output.image_embeds is None and translations is None):
            raise ValueError("a loss needs texts and their images (pixel_values) or translations (paired_input_ids)")
        if translations is not None:
            temperature, margin = config.text_text_temperature, config.text_text_margin
            return symmetric_contrastive_loss(texts, translations, temperature, margin=margin, **options)
        options["label_smoothing"] = config.label_smoothing
        return symmetric_contrastive_loss(output.image_embeds, texts, output.temperature, **options)

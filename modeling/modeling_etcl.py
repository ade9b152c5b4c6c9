"""ETCL: enhancement by triple contrastive learning (Lee et al. 2022).

It continues the training of a MURAL with one text layer for all tasks, retrained by the authors (section 3.3), on
triplets: an image x, its caption a in one language, and a translation b of the caption (section 3.2), with the
symmetric in-batch softmax

    L(u, v) = -1/B sum_i [log softmax_j s(u_i, v_j) / t  +  log softmax_j s(v_i, u_j) / t]_(j = i)       (equation 2)
    L_ETCL  = 1/3 (L(x, a) + L(a, b) + L(b, x))                                                          (equation 4)
"""

from typing import Any

from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.configuration_etcl import EtclConfig
from .modeling_dual_encoder import DualEncoderOutput
from .modeling_two_tower import TwoTowerModel


class EtclModel(TwoTowerModel):
    """ETCL, a dual encoder with one text projection for all tasks.

    Examples:
        >>> model = EtclModel.from_native("runs/mural")
        >>> inputs = processor(images=images, text=captions, language="de", return_tensors="pt")
        >>> logits = model(**inputs).logits_per_image  # [n_images, n_texts]
    """

    config_class = EtclConfig
    auto_classes = ("AutoModel", "AutoModelForZeroShotImageClassification")

    def __init__(self, config: EtclConfig) -> None:
        super().__init__(config)
        self.text_projection = self.new_text_head()
        self.post_init()

    @can_return_tuple
    def get_text_features(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        text_features: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Embeds texts [N, T], or features [N, W] of the text tower; `pooler_output` [N, d] is not normalized."""
        return self.embed_text(input_ids, attention_mask, self.text_projection, text_features, **kwargs)

    def training_head(self, has_images: bool, has_translations: bool) -> nn.Module:
        return self.text_projection

    def _objective(self, output: DualEncoderOutput, **options: Any) -> Tensor:
        """Computes L_ETCL on triplets, and on pairs L(x, a) or L(a, b), which the trainer weights as in equation 3."""
        from .losses.contrastive import symmetric_contrastive_loss, triple_contrastive_loss

        images, texts, translations = output.image_embeds, output.text_embeds, output.paired_text_embeds
        if texts is None or (output.image_embeds is None and translations is None):
            raise ValueError("a loss needs texts and their images (pixel_values) or translations (paired_input_ids)")
        config, temperature = self.config, output.temperature
        options["label_smoothing"] = config.label_smoothing
        if translations is None:
            return symmetric_contrastive_loss(images, texts, temperature, **options)
        options["margin"] = config.text_text_margin
        if images is None:
            return symmetric_contrastive_loss(
                texts, translations, config.text_text_temperature or temperature, **options
            )
        return triple_contrastive_loss(images, texts, translations, temperature, **options)

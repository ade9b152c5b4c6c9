"""ETCL: enhancement by triple contrastive learning (Lee et al. 2022).

It starts from a MURAL with one linear layer on the text side for all tasks, which the authors trained again (section
3.3), and continues its training on triplets: an image, its caption in one language, and a translation of the caption
(section 3.2).
"""

from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.configuration_etcl import EtclConfig
from ..configuration.configuration_two_tower import DualEncoderConfig, TwoTowerConfig
from ..configuration.strict_config import IMAGE_TEXT
from ..utils.errors import ModelKindError
from .losses.contrastive import symmetric_contrastive_loss, triple_contrastive_loss
from .modeling_dual_encoder import DualEncoderOutput
from .modeling_two_tower import TwoTowerModel

# The keys that an ETCL model takes over from a MURAL, as both have them.
_SHARED_KEYS = TwoTowerConfig.__annotations__ | DualEncoderConfig.__annotations__
_OF_TWO_TOWERS = [field.name for field in fields(TwoTowerConfig) if field.name in _SHARED_KEYS]


class EtclModel(TwoTowerModel):
    """ETCL, a dual encoder with one text projection for all tasks.

    Examples:
        >>> model = EtclModel.from_mural("runs/mural")
        >>> inputs = processor(images=images, text=captions, language="de", return_tensors="pt")
        >>> logits = model(**inputs).logits_per_image  # [n_images, n_texts]
    """

    config_class = EtclConfig
    auto_classes = ("AutoModel", "AutoModelForZeroShotImageClassification")

    def __init__(self, config: EtclConfig) -> None:
        super().__init__(config)
        self.text_projection = self.new_text_head()
        self.post_init()

    @classmethod
    def from_mural(cls, mural: PreTrainedModel | str | Path, **options: object) -> "EtclModel":
        """Makes an `EtclModel` with the towers, the temperature and the image-text head of a trained MURAL or ALIGN.

        MURAL's second head, which compared texts with texts only, is left out: ETCL compares them in the space of the
        images.

        Args:
            mural: a `MuralModel`, or its folder or Hub id.
            options: keys of `EtclConfig` that replace those of the model, such as `label_smoothing`.

        Raises:
            ModelKindError: if it is a model of another kind.

        Examples:
            >>> model = EtclModel.from_mural("runs/mural", label_smoothing=0.05)
        """
        source = AutoModel.from_pretrained(mural) if isinstance(mural, str | Path) else mural
        if source.config.model_type != "mural":
            raise ModelKindError(f"an ETCL model starts from a MURAL model; this one is {source.config.model_type!r}")
        taken = [*_OF_TWO_TOWERS, "text_text_temperature", "text_text_margin"]
        model = cls(EtclConfig(**{name: getattr(source.config, name) for name in taken} | options))
        head = f"text_heads.{IMAGE_TEXT}"
        weights = {name.replace(head, "text_projection"): value for name, value in source.state_dict().items()}
        own = model.state_dict()
        weights = {name: value for name, value in weights.items() if not name.startswith("text_heads")}
        if options.get("image_text_loss") is not None:  # the bias of SigLIP's loss is new, or not needed any more
            weights = {name: weights.get(name, value) for name, value in own.items()}
        model.load_state_dict(weights)
        return model.train(source.training)

    @can_return_tuple
    def get_text_features(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        text_features: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Embeds texts.

        Args:
            input_ids ([N, T]): token ids, as the processor makes them.
            attention_mask ([N, T]): 0 at padding.
            text_features ([N, W]): pooled features of the text tower that were computed before, instead.
            kwargs: keyword arguments of the text tower.

        Returns:
            The text tower's output; `pooler_output` [N, d] holds the embeddings, which are not normalized.

        Raises:
            ArgumentError: for a keyword that the text tower does not have.
            InputError: if there are neither texts nor features, or features of another width.
        """
        return self.embed_text(input_ids, attention_mask, self.text_projection, text_features, **kwargs)

    def training_head(self, has_images: bool, has_translations: bool) -> nn.Module:
        """Returns the text projection, the same for every task."""
        return self.text_projection

    def contrastive_objective(
        self, output: DualEncoderOutput, *, positives: Tensor | None = None, tile_size: int | None = None
    ) -> Tensor:
        """Computes the loss that the inputs of the batch call for.

        It is L_ETCL on triplets (equation 4), L_image-text on images with texts, and L_text-text on translations
        (equation 2); the trainer weighs these two as in equation 3. Arguments are those of
        `DualEncoderPreTrainedModel`.

        Raises:
            ValueError: if the output has no texts, or neither images nor translations.
        """
        return self.mean_over_widths(partial(self._objective, positives=positives, tile_size=tile_size), output)

    def _objective(self, output: DualEncoderOutput, *, positives: Tensor | None, tile_size: int | None) -> Tensor:
        images, texts, translations = output.image_embeds, output.text_embeds, output.paired_text_embeds
        if texts is None or (images is None and translations is None):
            raise ValueError("a loss needs texts and their images (pixel_values) or translations (paired_input_ids)")
        config = self.config
        options = {"positives": positives, "tile_size": tile_size, "label_smoothing": config.label_smoothing}
        if translations is None:
            return self.image_text_loss(output, texts, **options)
        margin = {"margin": config.text_text_margin}
        if images is None:
            temperature = config.text_text_temperature or output.temperature
            return symmetric_contrastive_loss(texts, translations, temperature, **margin, **options)
        fixed = config.triplet_text_temperature
        if output.logit_bias is None:
            return triple_contrastive_loss(
                images, texts, translations, output.temperature, text_text_temperature=fixed, **margin, **options
            )
        of_texts = symmetric_contrastive_loss(texts, translations, fixed or output.temperature, **margin, **options)
        of_images = [self.image_text_loss(output, each, **options) for each in (texts, translations)]
        return (of_images[0] + of_texts + of_images[1]) / 3


__all__ = ["EtclModel"]

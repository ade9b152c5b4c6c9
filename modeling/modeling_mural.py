"""MURAL: multimodal, multitask representations across languages (Jain et al. 2021); ALIGN is MURAL without the
text-text task.

An image tower and a text tower; the text tower's [CLS] state goes through one of two single-layer heads, one for
image-text matching and one for translation matching (section 3.1). There is no image projection: the text side is
projected to the image width.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from transformers import AlignModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.configuration_mural import MuralConfig
from ..configuration.tasks import IMAGE_TEXT, TEXT_TEXT
from .losses import symmetric_contrastive_loss
from .modeling_dual_encoder import (
    DualEncoderOutput,
    DualEncoderPreTrainedModel,
    build_tower,
    encode_by_length,
    image_width,
    normalize,
    pool_image,
)


class MuralModel(DualEncoderPreTrainedModel):
    config_class = MuralConfig
    auto_classes = ("AutoModel", "AutoModelForZeroShotImageClassification")

    def __init__(self, config: MuralConfig) -> None:
        super().__init__(config)
        self.text_model = build_tower(config.text_config)
        self.vision_model = build_tower(config.vision_config)
        width = image_width(config.vision_config)
        self.text_heads = nn.ModuleDict(
            {task: nn.Linear(self.text_model.config.hidden_size, width) for task in config.tasks}
        )
        self.temperature = nn.Parameter(torch.tensor(float(config.temperature_init_value)))
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, MuralModel):
            init.constant_(module.temperature, self.config.temperature_init_value)

    @classmethod
    def from_align(cls, align: AlignModel) -> "MuralModel":
        """ALIGN as a `MuralModel` without a text-text task, with the weights of a transformers `AlignModel`."""
        config = MuralConfig(
            tasks=[IMAGE_TEXT],
            text_config=align.config.text_config,
            vision_config=align.config.vision_config,
            temperature_init_value=align.config.temperature_init_value,
        )
        model = cls(config)
        head = f"text_heads.{IMAGE_TEXT}"
        weights = {name.replace("text_projection", head): value for name, value in align.state_dict().items()}
        # ALIGN reads the [CLS] state, so that its tanh pooler is never used.
        model.load_state_dict(
            {name: value for name, value in weights.items() if not name.startswith("text_model.pooler")}
        )
        return model.train(align.training)

    @can_return_tuple
    def get_text_features(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, task: str = IMAGE_TEXT, **kwargs: object
    ) -> BaseModelOutputWithPooling:
        """Embeds texts.

        Args:
            input_ids ([N, T]): token ids, `[CLS]` first.
            attention_mask ([N, T]): 0 at padding.
            task: which head; `"text_text"` gives the space in which translations meet.

        Returns:
            The text tower's output; `pooler_output` [N, d] is the embedding, not normalised.
        """
        if task not in self.text_heads:
            raise ValueError(f"this model has no head for {task!r}; its tasks are {list(self.text_heads)}")
        output = self.text_model(input_ids=input_ids, attention_mask=attention_mask, **kwargs)
        pooled = self.text_heads[task](output.last_hidden_state[:, 0])  # [N, T, width] -> [N, d]
        return BaseModelOutputWithPooling(
            output.last_hidden_state, pooled, output.get("hidden_states"), output.get("attentions")
        )

    @can_return_tuple
    def get_image_features(self, pixel_values: Tensor, **kwargs: object) -> BaseModelOutputWithPooling:
        """Embeds pictures, pixel_values [N, 3, H, W]; `pooler_output` [N, d] is the embedding, not normalised."""
        output = self.vision_model(pixel_values=pixel_values, **kwargs)
        pooled = pool_image(output)
        return BaseModelOutputWithPooling(
            output.last_hidden_state, pooled, output.get("hidden_states"), output.get("attentions")
        )

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        pixel_values: Tensor | None = None,
        attention_mask: Tensor | None = None,
        paired_input_ids: Tensor | None = None,
        paired_attention_mask: Tensor | None = None,
        return_loss: bool | None = None,
        return_logits: bool = True,
    ) -> DualEncoderOutput:
        """Embeds what is given and compares it: pictures with texts, or texts with their translations.

        Args:
            input_ids ([N, T]), attention_mask ([N, T]): texts.
            pixel_values ([M, 3, H, W]): pictures; M = N for a loss.
            paired_input_ids ([N, U]), paired_attention_mask ([N, U]): translations of the texts, for the text-text
                task.
            return_loss: compute `contrastive_objective`.
            return_logits: compute the similarities of all pictures with all texts, which large training batches cannot
                afford.
        """
        if pixel_values is not None and paired_input_ids is not None:
            raise ValueError("give pictures or translations, not both: each task has its own text head")
        task = IMAGE_TEXT if paired_input_ids is None else TEXT_TEXT
        images = texts = translations = logits = None
        if pixel_values is not None:
            images = normalize(self.get_image_features(pixel_values).pooler_output)
        if input_ids is not None:
            texts = self._embed_texts(input_ids, attention_mask, task)
        if paired_input_ids is not None:
            translations = self._embed_texts(paired_input_ids, paired_attention_mask, task)
        if return_logits and images is not None and texts is not None:
            logits = texts @ images.T / self.temperature  # [n_texts, n_images]
        output = DualEncoderOutput(
            logits_per_image=None if logits is None else logits.T,
            logits_per_text=logits,
            text_embeds=texts,
            image_embeds=images,
            paired_text_embeds=translations,
            temperature=self.temperature.clone(),
        )
        return replace(output, loss=self.contrastive_objective(output)) if return_loss else output

    def _embed_texts(self, input_ids: Tensor, attention_mask: Tensor | None, task: str) -> Tensor:
        def encode(ids: Tensor, mask: Tensor | None) -> Tensor:
            return self.get_text_features(ids, mask, task).pooler_output

        if attention_mask is None or self.text_length_groups == 1:
            return normalize(encode(input_ids, attention_mask))
        return normalize(encode_by_length(encode, input_ids, attention_mask, self.text_length_groups))

    def contrastive_objective(
        self, output: DualEncoderOutput, *, positives: Tensor | None = None, tile_size: int | None = None
    ) -> Tensor:
        """L_i2t + L_t2i on image-text pairs, L_l2r + L_r2l on translation pairs (section 3.1)."""
        if output.text_embeds is None or (output.image_embeds is None and output.paired_text_embeds is None):
            raise ValueError("a loss needs texts and their pictures (pixel_values) or translations (paired_input_ids)")
        options = {"positives": positives, "tile_size": tile_size}
        if output.paired_text_embeds is not None:
            left, right = output.text_embeds, output.paired_text_embeds
            options["margin"] = self.config.text_text_margin
            return symmetric_contrastive_loss(left, right, self.config.text_text_temperature, **options)
        return symmetric_contrastive_loss(output.image_embeds, output.text_embeds, output.temperature, **options)


__all__ = ["MuralModel"]

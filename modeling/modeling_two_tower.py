"""What MURAL and ETCL share: a text encoder read at [CLS], a vision backbone, and linear layers that bring texts to
the pictures' width.

There is no image projection: the backbone's pooled width is the width of the shared space (Jain et al. 2021, section
3.1; Lee et al. 2022, section 3.3).
"""

from typing import ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from .learned_temperature import LearnedTemperature
from .length_groups import encode_by_length
from .modeling_dual_encoder import (
    DualEncoderOutput,
    DualEncoderPreTrainedModel,
    build_tower,
    image_width,
    in_dtype_of,
    normalize,
    pool_image,
)


class TwoTowerModel(DualEncoderPreTrainedModel):
    """Subclasses make their heads with `new_text_head`, and define `training_head` and `get_text_features`."""

    # A weight of the model itself, as the temperature once was, is none that torchao can read.
    renamed_weights: ClassVar[dict[str, str]] = {"temperature": "similarity.temperature"}

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__(config)
        # The first of the weights, as ever: optimisers save their state by number.
        self.similarity = LearnedTemperature(config.temperature_init_value)
        self.text_model = build_tower(config.text_config)
        self.vision_model = build_tower(config.vision_config)

    @property
    def temperature(self) -> nn.Parameter:
        """The learned temperature [] as it is stored; cosines are divided by no less than `MIN_TEMPERATURE`."""
        return self.similarity.temperature

    def bound_temperature(self) -> None:
        self.similarity.bound()

    def new_text_head(self) -> nn.Linear:
        return nn.Linear(self.text_model.config.hidden_size, image_width(self.config.vision_config))

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, LearnedTemperature):
            init.constant_(module.temperature, self.config.temperature_init_value)

    def training_head(self, has_pictures: bool, has_translations: bool) -> nn.Module:
        """The layer that projects the texts of a batch with pictures, translations, or both."""
        raise NotImplementedError

    def embed_text(
        self, input_ids: Tensor, attention_mask: Tensor | None, head: nn.Module, **kwargs: object
    ) -> BaseModelOutputWithPooling:
        """The text tower's output; `pooler_output` [N, d] is its [CLS] state, projected."""
        output = self.text_model(input_ids=input_ids, attention_mask=attention_mask, **kwargs)
        pooled = head(output.last_hidden_state[:, 0])  # [N, T, width] -> [N, d]
        return BaseModelOutputWithPooling(
            output.last_hidden_state, pooled, output.get("hidden_states"), output.get("attentions")
        )

    @can_return_tuple
    def get_image_features(self, pixel_values: Tensor, **kwargs: object) -> BaseModelOutputWithPooling:
        """Embeds pictures, pixel_values [N, 3, H, W]; `pooler_output` [N, d] is the embedding, not normalised."""
        output = self.vision_model(pixel_values=in_dtype_of(self.vision_model, pixel_values), **kwargs)
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
        """Embeds what is given and compares it: pictures, texts, and translations of the texts.

        Args:
            input_ids ([N, T]), attention_mask ([N, T]): texts.
            pixel_values ([M, 3, H, W]): pictures; M = N for a loss.
            paired_input_ids ([N, U]), paired_attention_mask ([N, U]): translations of the texts.
            return_loss: compute `contrastive_objective`.
            return_logits: compute the similarities of all pictures with all texts, which large training batches cannot
                afford.
        """
        head = self.training_head(pixel_values is not None, paired_input_ids is not None)
        images = texts = translations = None
        if pixel_values is not None:
            images = normalize(self.get_image_features(pixel_values).pooler_output)
        if input_ids is not None:
            texts = self._text_embeds(input_ids, attention_mask, head)
        if paired_input_ids is not None:
            translations = self._text_embeds(paired_input_ids, paired_attention_mask, head)
        output = DualEncoderOutput(
            text_embeds=texts,
            image_embeds=images,
            paired_text_embeds=translations,
            temperature=self.similarity(),
        )
        return self.completed(output, return_logits=return_logits, return_loss=return_loss)

    def _text_embeds(self, input_ids: Tensor, attention_mask: Tensor | None, head: nn.Module) -> Tensor:
        def encode(ids: Tensor, mask: Tensor | None) -> Tensor:
            return self.embed_text(ids, mask, head).pooler_output

        if attention_mask is None or self.text_length_groups == 1:
            return normalize(encode(input_ids, attention_mask))

        def encode_rows(rows: Tensor, longest: int) -> Tensor:
            return encode(input_ids[rows, :longest], attention_mask[rows, :longest])

        return normalize(encode_by_length(encode_rows, attention_mask, self.text_length_groups))

"""What MLA and its baselines share: texts whose features are to meet those of a frozen native model (Zhang et al.
2022, section 3.3).

`native_model` is a dual encoder of transformers or babelens. It embeds the images, and the native texts whose
features others are to meet; subclasses say how those others are embedded.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel, initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from .acquirer import AcquiredBlock, load_plain_state_dict, plain_state_dict
from .forward_keywords import Call, asks_for_states, tower_keywords
from .learned_temperature import MIN_TEMPERATURE, at_least
from .losses.contrastive import symmetric_contrastive_loss
from .modeling_dual_encoder import (
    DualEncoderOutput,
    DualEncoderPreTrainedModel,
    in_dtype_of,
    normalize,
    with_states,
    without_states,
)
from .modeling_mural import MuralModel

Trainable = Literal["acquirers", "native", "all"]


@dataclass
class MlaOutput(DualEncoderOutput):
    """
    Args:
        text_features, image_features, paired_text_features ([N, d]): what `*_embeds` are before they are normalised;
            in training.
    """

    text_features: Tensor | None = None
    image_features: Tensor | None = None
    paired_text_features: Tensor | None = None


def new_native_model(config: PreTrainedConfig) -> PreTrainedModel:
    """An untrained dual encoder of this configuration, of transformers or of babelens; the latter also where the
    package is not installed."""
    if config.model_type == MuralModel.config_class.model_type:
        return MuralModel._from_config(config)
    return AutoModel.from_config(config)


class MlaPreTrainedModel(DualEncoderPreTrainedModel):
    """Subclasses define `get_text_features`, `frozen_parts` and `set_trainable`."""

    native_model: PreTrainedModel
    trains_native = False

    @torch.no_grad()
    def initialize_weights(self) -> None:
        super().initialize_weights()
        initial = getattr(self.native_model.config, "logit_scale_init_value", None)
        if (
            initial is not None
        ):  # CLIP's, which transformers sets when the model is made, and not when a folder lacks it
            init.constant_(self.native_model.logit_scale, initial)

    def load_native(self, weights: dict[str, Tensor]) -> None:
        """Takes over the weights of a plain dual encoder."""
        load_plain_state_dict(self.native_model, weights)

    def native_state_dict(self) -> dict[str, Tensor]:
        """The native model's weights as it has them by itself."""
        return plain_state_dict(self.native_model)

    def frozen_parts(self) -> list[nn.Module]:
        """What is never trained, acquirers inside of it apart."""
        raise NotImplementedError

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for part in self.frozen_parts():
            part.eval()  # neither dropout nor new batch statistics in what is frozen; acquirers have none
            for block in part.modules():
                if isinstance(block, AcquiredBlock):
                    # Of the block alone: whether gradients are checkpointed hangs on it.
                    block.base_layer.training = mode
        return self

    @can_return_tuple
    def get_image_features(self, pixel_values: Tensor, **kwargs: Any) -> BaseModelOutputWithPooling:
        """Embeds images, pixel_values [N, 3, H, W]: the native model's own `get_image_features`."""
        (kwargs,) = tower_keywords(self, kwargs, self.image_calls())
        pixel_values = in_dtype_of(self.native_model.vision_model, pixel_values)
        return self.native_model.get_image_features(pixel_values=pixel_values, return_dict=True, **kwargs)

    def image_calls(self) -> list[Call]:
        native = self.native_model
        return [native.get_image_features, native.vision_model.forward]

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        pixel_values: Tensor | None = None,
        attention_mask: Tensor | None = None,
        language_ids: Tensor | None = None,
        image_features: Tensor | None = None,
        paired_input_ids: Tensor | None = None,
        paired_attention_mask: Tensor | None = None,
        paired_language_ids: Tensor | None = None,
        paired_text_features: Tensor | None = None,
        return_loss: bool | None = None,
        return_logits: bool = True,
        positives: Tensor | None = None,
        **kwargs: Any,
    ) -> MlaOutput:
        """Embeds what is given and compares it: texts with images, or with their native translations.

        Args:
            input_ids ([N, T]), attention_mask ([N, T]), language_ids ([N]): texts, as in `get_text_features`.
            pixel_values ([M, 3, H, W]): images; M = N for a loss.
            image_features ([M, d]): the images' features, computed before, instead.
            paired_input_ids, paired_attention_mask: native translations of the texts, ids of the native tokenizer,
                whose features the texts' are to meet; no gradient reaches them.
            paired_language_ids: all 0, or left out.
            paired_text_features ([N, d]): the features of these translations, computed before, instead.
            return_loss: compute `contrastive_objective`; default: when `positives` are given.
            return_logits: compute the similarities of all images with all texts.
            positives: which further pairs are right, as collators mark them; see `contrastive_loss`.
            kwargs: transformers' own (`output_hidden_states`, `output_attentions`, …), for both towers, and what one
                of them names.

        Raises:
            ArgumentError: for a keyword that nobody knows.
            InputError: for nothing to embed.
        """
        text_kwargs, image_kwargs = self.keywords_of_towers(kwargs)
        keeps_states = return_logits or asks_for_states(kwargs)
        texts = images = None
        if input_ids is not None:
            texts = self.get_text_features(input_ids, attention_mask, language_ids, return_dict=True, **text_kwargs)
            texts = texts if keeps_states else without_states(texts)
        if pixel_values is not None:
            with torch.set_grad_enabled(self.trains_native and torch.is_grad_enabled()):
                images = self.get_image_features(pixel_values, return_dict=True, **image_kwargs)
            images = images if keeps_states else without_states(images)
            image_features = images.pooler_output
        if paired_input_ids is not None:
            paired_text_features = self._paired_features(paired_input_ids, paired_attention_mask, paired_language_ids)
        text_features = None if texts is None else texts.pooler_output
        output = MlaOutput(
            text_embeds=None if text_features is None else normalize(text_features),
            image_embeds=None if image_features is None else normalize(image_features),
            text_model_output=with_states(texts),
            vision_model_output=with_states(images),
            paired_text_embeds=None if paired_text_features is None else normalize(paired_text_features),
            temperature=self._temperature(),
            text_features=text_features,
            image_features=image_features,
            paired_text_features=paired_text_features,
        )
        return self.with_logits_and_loss(
            output, return_logits=return_logits, return_loss=return_loss, positives=positives
        )

    @property
    def logit_bias(self) -> Tensor | float:
        return getattr(self.native_model, "logit_bias", 0.0)

    @torch.no_grad()
    def _paired_features(
        self, input_ids: Tensor, attention_mask: Tensor | None, language_ids: Tensor | None
    ) -> Tensor:
        if language_ids is not None and language_ids.any():
            raise ValueError("paired texts are native ones, whose features the others' are to meet")
        inputs = {} if attention_mask is None else {"attention_mask": attention_mask}
        return self.native_model.get_text_features(input_ids=input_ids, return_dict=True, **inputs).pooler_output

    def _temperature(self) -> Tensor:
        """What divides the cosines in the native model."""
        native = self.native_model
        if hasattr(native, "logit_scale"):
            temperature = (-native.logit_scale).exp()
            # Frozen, it is what it was trained to be: SigLIP's cosines are divided by less.
            return at_least(temperature, MIN_TEMPERATURE) if self.trains_native else temperature
        return at_least(native.temperature, MIN_TEMPERATURE)

    @torch.no_grad()
    def bound_temperature(self) -> None:
        native = self.native_model
        if not self.trains_native:
            return
        if hasattr(native, "logit_scale"):
            native.logit_scale.clamp_(max=-math.log(MIN_TEMPERATURE))
        else:
            native.temperature.clamp_(min=MIN_TEMPERATURE)

    def contrastive_objective(
        self, output: MlaOutput, *, positives: Tensor | None = None, tile_size: int | None = None
    ) -> Tensor:
        """Native language transfer on translations (equation 4), language exposure on images (equation 5)."""
        if output.text_features is None or (output.image_features is None and output.paired_text_features is None):
            raise ValueError("a loss needs texts and their images or native translations")
        if output.paired_text_features is not None:
            target, embeds = output.paired_text_features, output.paired_text_embeds
            objective = self.config.text_text_objective
        else:
            target, embeds = output.image_features, output.image_embeds
            objective = self.config.image_text_objective
        if objective == "mse":
            return nn.functional.mse_loss(output.text_features.float(), target.float())
        temperature = output.temperature if self.trains_native else 1 / self.config.logit_scale
        options = {"positives": positives, "tile_size": tile_size}
        return symmetric_contrastive_loss(embeds, output.text_embeds, temperature, **options) / 2

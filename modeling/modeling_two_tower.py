"""What MURAL and ETCL share: a text encoder that is read at [CLS], a vision backbone, and linear layers that project
texts to the width of the images.

Images are not projected: the pooled width of the backbone is the width of the shared space (Jain et al. 2021, section
3.1; Lee et al. 2022, section 3.3).
"""

from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from transformers import PreTrainedConfig, initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.feature_width import image_width
from ..configuration.frozen_towers import TOWERS
from .forward_keywords import asks_for_states, tower_keywords
from .learned_temperature import LearnedTemperature
from .length_groups import encode_by_length
from .modeling_dual_encoder import (
    DualEncoderOutput,
    DualEncoderPreTrainedModel,
    in_dtype_of,
    normalize,
    with_states,
    without_states,
)
from .towers import build_tower, pool_image


class TwoTowerModel(DualEncoderPreTrainedModel):
    """Base class of MURAL and ETCL.

    Subclasses make their heads with `new_text_head`, and define `training_head` and `get_text_features`.
    """

    # The temperature once belonged to the model itself, where torchao cannot read it.
    renamed_weights: ClassVar[dict[str, str]] = {"temperature": "similarity.temperature"}

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__(config)
        # It must stay the first parameter: optimizers save their state by the index of the parameters.
        self.similarity = LearnedTemperature(config.temperature_init_value)
        self.text_model = build_tower(config.text_config)
        self.vision_model = build_tower(config.vision_config)
        for name in getattr(config, "freeze", ()):  # a method of another package need not have the key
            self.towers[name].requires_grad_(False).eval()

    @property
    def towers(self) -> dict[str, nn.Module]:
        """The image tower and the text tower, by the names `image` and `text`."""
        return {name: getattr(self, attribute) for name, attribute in TOWERS.items()}

    @property
    def frozen_towers(self) -> tuple[str, ...]:
        """The names of the towers without a weight that is trained at present: of `image` and `text`."""
        return tuple(
            name
            for name, tower in self.towers.items()
            if not any(weight.requires_grad for weight in tower.parameters())
        )

    def train(self, mode: bool = True) -> Self:
        """Sets training mode, except in the frozen parts of the towers: see `keep_frozen_parts_still`."""
        super().train(mode)
        for tower in self.towers.values() if mode else ():
            keep_frozen_parts_still(tower)
        return self

    @property
    def temperature(self) -> nn.Parameter:
        """The learned temperature [] as it is stored; the cosines are divided by no less than `MIN_TEMPERATURE`."""
        return self.similarity.temperature

    def bound_temperature(self) -> None:
        self.similarity.bound()

    def new_text_head(self) -> nn.Linear:
        """Returns a new linear layer from the width of the text tower to the width of the shared space."""
        return nn.Linear(self.text_model.config.hidden_size, image_width(self.config.vision_config))

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, LearnedTemperature):
            init.constant_(module.temperature, self.config.temperature_init_value)

    def training_head(self, has_images: bool, has_translations: bool) -> nn.Module:
        """Returns the layer that projects the texts of a batch with images, with translations, or with both."""
        raise NotImplementedError

    def embed_text(
        self, input_ids: Tensor, attention_mask: Tensor | None, head: nn.Module, **kwargs: Any
    ) -> BaseModelOutputWithPooling:
        """Runs the text tower; `pooler_output` [N, d] of the result is the projected state at [CLS]."""
        (kwargs,) = tower_keywords(self, kwargs, self.text_calls())
        output = self.text_model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **kwargs)
        pooled = head(output.last_hidden_state[:, 0])  # [N, T, width] -> [N, d]
        return BaseModelOutputWithPooling(
            output.last_hidden_state, pooled, output.get("hidden_states"), output.get("attentions")
        )

    @can_return_tuple
    def get_image_features(self, pixel_values: Tensor, **kwargs: Any) -> BaseModelOutputWithPooling:
        """Embeds images.

        Args:
            pixel_values ([N, 3, H, W]): images, as an image processor prepares them.
            kwargs: keyword arguments of the image tower.

        Returns:
            The image tower's output; `pooler_output` [N, d] holds the embeddings, which are not normalized.

        Raises:
            ArgumentError: for a keyword that the image tower does not have.
        """
        (kwargs,) = tower_keywords(self, kwargs, self.image_calls())
        pixel_values = in_dtype_of(self.vision_model, pixel_values)
        output = self.vision_model(pixel_values=pixel_values, return_dict=True, **kwargs)
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
        positives: Tensor | None = None,
        text_length_groups: int = 1,
        **kwargs: Any,
    ) -> DualEncoderOutput:
        """Embeds images, texts and translations of the texts, whichever are given, and compares them.

        Args:
            input_ids ([N, T]), attention_mask ([N, T]): texts.
            pixel_values ([M, 3, H, W]): images; a loss needs M = N.
            paired_input_ids ([N, U]), paired_attention_mask ([N, U]): translations of the texts.
            return_loss: whether to compute `contrastive_objective`; by default, if `positives` are given.
            return_logits: whether to compute the similarities of all images with all texts, for which large training
                batches have no memory.
            positives: further pairs that belong together, as collators mark them; see `contrastive_loss`.
            text_length_groups: number of groups of similar length in which the texts are encoded, so that short texts
                are not padded to the length of the longest text. The embeddings are the same. The states of the groups
                differ in length. Asking for hidden states or attentions turns the grouping off.
            kwargs: arguments of transformers for both towers, such as `output_hidden_states`, and those that one tower
                has.

        Returns:
            Embeddings, similarities and loss; without `text_model_output`, if there are several `text_length_groups`.

        Raises:
            ArgumentError: for a keyword that neither tower has.
            InputError: if there is nothing to embed.
        """
        text_kwargs, image_kwargs = self.keywords_of_towers(kwargs)
        head = self.training_head(pixel_values is not None, paired_input_ids is not None)
        keeps_states = return_logits or asks_for_states(kwargs)
        images = texts = translations = None
        if pixel_values is not None:
            images = self.get_image_features(pixel_values, return_dict=True, **image_kwargs)
            images = images if keeps_states else without_states(images)
        if input_ids is not None:
            texts = self._text_output(input_ids, attention_mask, head, text_length_groups, text_kwargs)
            texts = texts if keeps_states else without_states(texts)
        if paired_input_ids is not None:
            translations = without_states(
                self._text_output(paired_input_ids, paired_attention_mask, head, text_length_groups, {})
            )
        output = DualEncoderOutput(
            text_embeds=None if texts is None else normalize(texts.pooler_output),
            image_embeds=None if images is None else normalize(images.pooler_output),
            text_model_output=with_states(texts),
            vision_model_output=with_states(images),
            paired_text_embeds=None if translations is None else normalize(translations.pooler_output),
            temperature=self.similarity(),
        )
        return self.with_logits_and_loss(
            output, return_logits=return_logits, return_loss=return_loss, positives=positives
        )

    def _text_output(
        self, input_ids: Tensor, attention_mask: Tensor | None, head: nn.Module, groups: int, kwargs: dict[str, Any]
    ) -> BaseModelOutputWithPooling:
        """Embeds texts as `embed_text` does; texts in groups of similar length have pooled features alone."""
        if attention_mask is None or groups == 1 or asks_for_states(kwargs):
            return self.embed_text(input_ids, attention_mask, head, **kwargs)

        def encode_rows(rows: Tensor, longest: int) -> Tensor:
            return self.embed_text(input_ids[rows, :longest], attention_mask[rows, :longest], head).pooler_output

        pooled = encode_by_length(encode_rows, attention_mask, groups)
        return BaseModelOutputWithPooling(pooler_output=pooled)


def keep_frozen_parts_still(module: nn.Module) -> None:
    """Sets evaluation mode in the parts of a module whose weights are all frozen: they have no dropout, and no new
    batch statistics. Batch normalization updates its statistics only if all of its weights are trained."""
    trained = [weight.requires_grad for weight in module.parameters()]
    if trained and all(trained):
        return
    if isinstance(module, _NormBase) or (trained and not any(trained)):
        module.eval()
        return
    for child in module.children():
        keep_frozen_parts_still(child)

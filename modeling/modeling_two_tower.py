"""The base of MURAL and ETCL: a text encoder f, a vision backbone g and a linear layer h into one space (Jain et al.
2021, section 3.1; Lee et al. 2022, section 3.3).

    text    h(pool(f(tokens)))      pooled at [CLS] in the papers
    image   pool(g(pixels))         the pooled width of the backbone is the width of the shared space
"""

from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.configuration_two_tower import POOLER, TOWERS, image_width, text_width
from ..utils.errors import InputError
from .modeling_dual_encoder import (
    MIN_TEMPERATURE,
    DualEncoderOutput,
    DualEncoderPreTrainedModel,
    LearnedTemperature,
    build_tower,
    eval_frozen_modules,
    in_dtype_of,
    normalize,
    pool_image,
    pool_text,
    text_head,
    text_head_input,
    tower_keywords,
    with_embeddings,
)


class TwoTowerModel(DualEncoderPreTrainedModel):
    """Base class of MURAL and ETCL; subclasses define `training_head` and `get_text_features`."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__(config)
        # It must stay the first parameter: optimizers save their state by the index of the parameters. Torchao cannot
        # read tensors that belong to the model itself.
        self.similarity = LearnedTemperature(config.temperature_init_value)
        self.text_model = build_tower(config.text_config, pooler=config.text_pooling == POOLER)
        self.vision_model = build_tower(config.vision_config, pooler=None if config.image_pooling == POOLER else False)
        width = image_width(config.vision_config)
        self.image_projection = nn.Linear(width, config.projection_dim) if config.image_head else nn.Identity()
        width = text_width(config.text_config, config.text_pooling)
        self.text_head_input = text_head_input(width, layer_norm=config.text_layer_norm, dropout=config.text_dropout)
        self.image_dropout = nn.Dropout(config.image_dropout)
        for name in config.freeze:
            self.towers[name].requires_grad_(False).eval()

    @classmethod
    def from_towers(cls, image: Any, text: Any, **options: Any) -> Self:
        """Makes a model of two pretrained towers, with new linear layers. Each tower is a folder, a Hub id or a model,
        also of a dual encoder that contains it. `options` are keys of the configuration; `projection_dim` adds a
        projection of images, and `text_pooling` is by default as the text encoder's folder states, else `cls`. `fresh`
        names the towers whose weights are initialized; `loading` holds arguments of `from_pretrained`.

        Examples:
            >>> towers = "google/efficientnet-b0", "intfloat/multilingual-e5-small"
            >>> model = MuralModel.from_towers(*towers, projection_dim=512, text_prompt="query: ", freeze=["image"])
            >>> processor = MuralProcessor.from_towers(*towers, model.config)
        """
        from .tower_loading import model_of_towers

        return model_of_towers(cls, image, text, **options)

    @classmethod
    def from_native(cls, native: Any, **options: Any) -> Self:
        """Makes a model with the towers, the temperature and the image-text head of a trained MURAL, ETCL or ALIGN;
        other heads are initialized, and `options` replace keys of its configuration. An ALIGN of transformers stays
        one, with its label smoothing, unless `tasks` add a text head for translations (Jain et al. 2021, A.1)."""
        from .tower_loading import model_from_native

        return model_from_native(cls, native, **options)

    @property
    def towers(self) -> dict[str, nn.Module]:
        """The image tower and the text tower, by the names `image` and `text`."""
        return {name: getattr(self, attribute) for name, attribute in TOWERS.items()}

    def train(self, mode: bool = True) -> Self:
        """Sets training mode, except in the frozen parts of the towers (`eval_frozen_modules`)."""
        super().train(mode)
        for tower in self.towers.values() if mode else ():
            eval_frozen_modules(tower)
        return self

    @property
    def temperature(self) -> nn.Parameter:
        """The stored temperature []; the cosines are divided by at least `MIN_TEMPERATURE`."""
        return self.similarity.temperature

    @torch.no_grad()
    def bound_temperature(self) -> None:
        """Raises the temperature to its lower bound; trainers call it after each step of the optimizer."""
        self.temperature.clamp_(min=MIN_TEMPERATURE)

    def new_text_head(self) -> nn.Module:
        """Returns a new head from the width of the text features to the width of the shared space."""
        config = self.config
        width = text_width(config.text_config, config.text_pooling)
        return text_head(width, config.projection_dim, config.text_hidden_size, config.text_dropout)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, LearnedTemperature):
            init.constant_(module.temperature, self.config.temperature_init_value)

    def training_head(self, has_images: bool, has_translations: bool) -> nn.Module:
        """Returns the layer that projects the texts of a batch with images, with translations, or with both."""
        raise NotImplementedError

    def embed_text(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        head: nn.Module,
        text_features: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Runs the text tower, or takes its features [N, W]; `pooler_output` [N, d] is their projection by `head`."""
        if text_features is not None:
            features = self.text_head_input(in_dtype_of(self, text_features))
            return BaseModelOutputWithPooling(pooler_output=head(features))
        if input_ids is None:
            raise InputError(f"{type(self).__name__} needs texts: input_ids or text_features")
        kwargs = tower_keywords(kwargs, self.text_model.forward)
        output = self.text_model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **kwargs)
        features = pool_text(output, input_ids, attention_mask, self.config)
        return with_embeddings(output, head(self.text_head_input(features)))

    @can_return_tuple
    def get_image_features(
        self, pixel_values: Tensor | None = None, image_features: Tensor | None = None, **kwargs: Any
    ) -> BaseModelOutputWithPooling:
        """Embeds images [N, 3, H, W], or features [N, F] of their tower; `pooler_output` [N, d] is not normalized."""
        if image_features is not None:
            features = in_dtype_of(self, image_features)
            return BaseModelOutputWithPooling(pooler_output=self.image_projection(self.image_dropout(features)))
        if pixel_values is None:
            raise InputError(f"{type(self).__name__} needs images: pixel_values or image_features")
        kwargs = tower_keywords(kwargs, self.vision_model.forward)
        pixel_values = in_dtype_of(self.vision_model, pixel_values)
        output = self.vision_model(pixel_values=pixel_values, return_dict=True, **kwargs)
        features = pool_image(output, self.config.image_pooling)
        return with_embeddings(output, self.image_projection(self.image_dropout(features)))

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        pixel_values: Tensor | None = None,
        attention_mask: Tensor | None = None,
        paired_input_ids: Tensor | None = None,
        paired_attention_mask: Tensor | None = None,
        image_features: Tensor | None = None,
        text_features: Tensor | None = None,
        paired_text_features: Tensor | None = None,
        return_loss: bool | None = None,
        return_logits: bool = True,
        positives: Tensor | None = None,
        **kwargs: Any,
    ) -> DualEncoderOutput:
        """Embeds images [M, 3, H, W], texts [N, T] and their translations [N, U], whichever are given, or features of
        the towers ([M, F], [N, W], `frozen_features`), and compares all images with all texts, for which large batches
        have no memory (`return_logits`). The loss, by default with `positives` (`contrastive_loss`), needs M = N."""
        has_images = pixel_values is not None or image_features is not None
        has_translations = paired_input_ids is not None or paired_text_features is not None
        head = self.training_head(has_images, has_translations)
        found: dict[str, Any] = {"temperature": self.similarity()}
        if has_images:
            images = self.get_image_features(pixel_values, image_features, **kwargs | {"return_dict": True})
            found |= {"vision_model_output": images, "image_embeds": normalize(images.pooler_output)}
        if text_features is not None or input_ids is not None:
            texts = self.embed_text(input_ids, attention_mask, head, text_features, **kwargs)
            found |= {"text_model_output": texts, "text_embeds": normalize(texts.pooler_output)}
        if has_translations:
            paired = self.embed_text(paired_input_ids, paired_attention_mask, head, paired_text_features)
            found["paired_text_embeds"] = normalize(paired.pooler_output)
        return self.with_logits_and_loss(DualEncoderOutput(**found), return_logits, return_loss, positives)

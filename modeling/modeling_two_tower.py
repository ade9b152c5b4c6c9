"""What MURAL and ETCL share: a text encoder, a vision backbone, and linear layers that project texts to the width of
the images.

In the papers, the text encoder is read at [CLS], and images are not projected: the pooled width of the backbone is the
width of the shared space (Jain et al. 2021, section 3.1; Lee et al. 2022, section 3.3). Pretrained towers may be read
otherwise, and meet in a space of any width (`from_towers`). What comes out of a tower, before the linear layer, is
called a feature here: a frozen tower's features can be computed once and be given in the place of images and texts.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.configuration_two_tower import POOLER, TOWERS, TextPooling, image_width, text_width
from ..utils.errors import InputError
from .losses.contrastive import sigmoid_loss, symmetric_contrastive_loss
from .modeling_common import asks_for_states, tower_keywords
from .modeling_dual_encoder import (
    DualEncoderOutput,
    DualEncoderPreTrainedModel,
    LearnedTemperature,
    in_dtype_of,
    normalize,
    with_embeddings,
    with_states,
    without_states,
)
from .towers import build_tower, keep_frozen_parts_still, pool_image, pool_text, text_head, text_head_input


class TwoTowerModel(DualEncoderPreTrainedModel):
    """Base class of MURAL and ETCL.

    Subclasses make their heads with `new_text_head`, and define `training_head` and `get_text_features`.
    """

    # The temperature once belonged to the model itself, where torchao cannot read it.
    renamed_weights: ClassVar[dict[str, str]] = {"temperature": "similarity.temperature"}

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__(config)
        # It must stay the first parameter: optimizers save their state by the index of the parameters.
        bias = config.logit_bias_init_value if config.image_text_loss == "sigmoid" else None
        self.similarity = LearnedTemperature(config.temperature_init_value, bias)
        self.text_model = build_tower(config.text_config, pooler=config.text_pooling == POOLER)
        self.vision_model = build_tower(config.vision_config, pooler=None if config.image_pooling == POOLER else False)
        width = image_width(config.vision_config)
        image_head = nn.Linear(width, config.projection_dim, config.head_bias) if config.image_head else nn.Identity()
        self.image_projection = image_head
        self.text_head_input = text_head_input(
            text_width(config.text_config, config.text_pooling),
            layer_norm=config.text_layer_norm,
            dropout=config.text_dropout,
        )
        self.image_dropout = nn.Dropout(config.image_dropout)
        for name in config.freeze:
            self.towers[name].requires_grad_(False).eval()

    @classmethod
    def from_towers(
        cls,
        image: PreTrainedModel | str | Path,
        text: PreTrainedModel | str | Path,
        *,
        projection_dim: int | None = None,
        text_pooling: TextPooling | None = None,
        text_prompt: str | None = None,
        freeze: Collection[str] = (),
        fresh: Collection[str] = (),
        loading: dict[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Makes a model of two pretrained towers, with new linear layers.

        Args:
            image: a vision backbone: a folder, a Hub id or a model. Of a dual encoder such as CLIP, its image tower.
            text: a text encoder, likewise.
            projection_dim: width of the shared space, to which a linear layer projects images too; by default, images
                are not projected, as in the papers, and the space is as wide as their features.
            text_pooling: `cls`, `mean`, `eos` or `pooler`; by default what the encoder's own files say
                (sentence-transformers), or else `cls`.
            text_prompt: what the processor puts before every text, such as "query: " for E5.
            freeze: the towers that are not trained, of "image" and "text".
            fresh: the towers whose weights are drawn anew, likewise: of the pretrained one, only the sizes are kept.
            loading: keyword arguments of `from_pretrained` for both towers, such as `trust_remote_code`.
            options: further keys of the configuration, such as `text_dropout`.

        Raises:
            ModelFolderError: if there is no such folder or repository, or it lacks weights.
            ModelKindError: if a source has no such tower, or cannot pool texts as asked.
            ValueError: if an option is unknown or impossible.

        Examples:
            >>> model = MuralModel.from_towers(
            ...     "google/efficientnet-b0", "intfloat/multilingual-e5-small", projection_dim=512,
            ...     text_pooling="mean", text_prompt="query: ", freeze=["image", "text"],
            ... )
            >>> processor = MuralProcessor.from_towers(
            ...     "google/efficientnet-b0", "intfloat/multilingual-e5-small", model.config
            ... )
        """
        from .tower_loading import model_of_towers

        made: Self = model_of_towers(
            cls,
            image,
            text,
            projection_dim=projection_dim,
            text_pooling=text_pooling,
            text_prompt=text_prompt,
            freeze=freeze,
            fresh=fresh,
            loading=loading,
            **options,
        )
        return made

    @torch.no_grad()
    def reset_heads(self) -> None:
        """Draws the layers between the towers and the shared space anew, as in a new model; the towers and the
        temperature stay as they are."""
        kept = (self.similarity, *self.towers.values())
        for module in (part for child in self.children() if child not in kept for part in child.modules()):
            for part in (module, *module.parameters(recurse=False)):
                part._is_hf_initialized = False  # transformers leaves alone what was loaded
            self._init_weights(module)

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

    @property
    def logit_bias(self) -> Tensor | float:
        return 0.0 if self.similarity.bias is None else self.similarity.bias

    def image_text_loss(self, output: Any, texts: Tensor, *, label_smoothing: float = 0.0, **options: Any) -> Tensor:
        """Computes the loss of the images in `output` with their texts that the configuration names: the softmax in
        both directions, added up, or SigLIP's sigmoid, which has no label smoothing.

        Args:
            output: embeddings, temperature and bias.
            texts ([N, d]): embeddings of the texts.
            label_smoothing, options: as in `contrastive_loss`.

        Returns:
            The loss [].
        """
        images, temperature = output.image_embeds, output.temperature
        if output.logit_bias is not None:
            return sigmoid_loss(images, texts, temperature, output.logit_bias, **options)
        return symmetric_contrastive_loss(images, texts, temperature, label_smoothing=label_smoothing, **options)

    def new_text_head(self) -> nn.Module:
        """Returns a new head from the width of the text features to the width of the shared space: a linear layer, or
        two with a hidden layer between them."""
        config = self.config
        width = text_width(config.text_config, config.text_pooling)
        hidden, dropout = config.text_hidden_size, config.text_dropout
        return text_head(width, config.projection_dim, hidden_size=hidden, dropout=dropout, bias=config.head_bias)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, LearnedTemperature):
            init.constant_(module.temperature, self.config.temperature_init_value)
            if module.bias is not None:
                init.constant_(module.bias, self.config.logit_bias_init_value)

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
        """Runs the text tower, or takes its features; `pooler_output` [N, d] of the result is the projection of the
        features.

        Raises:
            ArgumentError: for a keyword that the text tower does not have.
            InputError: if there are neither texts nor features, or features of another width.
        """
        (kwargs,) = tower_keywords(self, kwargs, self.text_calls())
        if text_features is not None:
            width = text_width(self.config.text_config, self.config.text_pooling)
            features = self._checked_features(text_features, width, "text_features")
            return BaseModelOutputWithPooling(pooler_output=head(self.text_head_input(features)))
        if input_ids is None:
            raise InputError(f"{type(self).__name__} needs texts: input_ids or text_features")
        output = self.text_model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **kwargs)
        pooled = head(self.text_head_input(self.pooled_texts(output, input_ids, attention_mask)))
        return with_embeddings(output, pooled)

    def pooled_texts(self, output: Any, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Returns the features [N, W] of texts, read from the output of the text tower."""
        end_id = getattr(self.config.text_config, "eos_token_id", None)
        return pool_text(output, attention_mask, self.config.text_pooling, input_ids=input_ids, end_id=end_id)

    def _checked_features(self, features: Tensor, width: int, name: str) -> Tensor:
        if features.shape[-1] != width:
            raise InputError(f"{name} have the width {features.shape[-1]}; this model's tower gives {width}")
        return in_dtype_of(self, features)

    @can_return_tuple
    def get_image_features(
        self, pixel_values: Tensor | None = None, image_features: Tensor | None = None, **kwargs: Any
    ) -> BaseModelOutputWithPooling:
        """Embeds images.

        Args:
            pixel_values ([N, 3, H, W]): images, as an image processor prepares them.
            image_features ([N, F]): pooled features of the image tower that were computed before, instead.
            kwargs: keyword arguments of the image tower.

        Returns:
            The image tower's output; `pooler_output` [N, d] holds the embeddings, which are not normalized.

        Raises:
            ArgumentError: for a keyword that the image tower does not have.
            InputError: if there are neither images nor features, or features of another width.
        """
        (kwargs,) = tower_keywords(self, kwargs, self.image_calls())
        if image_features is not None:
            features = self._checked_features(image_features, image_width(self.config.vision_config), "image_features")
            return BaseModelOutputWithPooling(pooler_output=self.image_projection(self.image_dropout(features)))
        if pixel_values is None:
            raise InputError(f"{type(self).__name__} needs images: pixel_values or image_features")
        pixel_values = in_dtype_of(self.vision_model, pixel_values)
        output = self.vision_model(pixel_values=pixel_values, return_dict=True, **kwargs)
        pooled = self.image_projection(self.image_dropout(pool_image(output, self.config.image_pooling)))
        return with_embeddings(output, pooled)

    @property
    def tower_features(self) -> "TowerFeatures":
        """The towers alone, as a dual encoder whose embeddings are the features before the linear layers."""
        return TowerFeatures(self)

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
        """Embeds images, texts and translations of the texts, whichever are given, and compares them.

        Args:
            input_ids ([N, T]), attention_mask ([N, T]): texts.
            pixel_values ([M, 3, H, W]): images; a loss needs M = N.
            paired_input_ids ([N, U]), paired_attention_mask ([N, U]): translations of the texts.
            image_features ([M, F]), text_features ([N, W]), paired_text_features ([N, W]): pooled features of the
                towers that were computed before (`tower_features`), in the place of images, texts and translations.
            return_loss: whether to compute `contrastive_objective`; by default, if `positives` are given.
            return_logits: whether to compute the similarities of all images with all texts, for which large training
                batches have no memory.
            positives: further pairs that belong together, as collators mark them; see `contrastive_loss`.
            kwargs: arguments of transformers for both towers, such as `output_hidden_states`, and those that one tower
                has.

        Returns:
            Embeddings, similarities and loss.

        Raises:
            ArgumentError: for a keyword that neither tower has.
            InputError: if there is nothing to embed.
        """
        text_kwargs, image_kwargs = self.keywords_of_towers(kwargs)
        has_images = pixel_values is not None or image_features is not None
        has_translations = paired_input_ids is not None or paired_text_features is not None
        head = self.training_head(has_images, has_translations)
        keeps_states = return_logits or asks_for_states(kwargs)
        images = texts = translations = None
        if has_images:
            images = self.get_image_features(pixel_values, image_features, return_dict=True, **image_kwargs)
            images = images if keeps_states else without_states(images)
        if text_features is not None:
            texts = self.embed_text(None, None, head, text_features)
        elif input_ids is not None:
            texts = self.embed_text(input_ids, attention_mask, head, **text_kwargs)
            texts = texts if keeps_states else without_states(texts)
        if paired_text_features is not None:
            translations = self.embed_text(None, None, head, paired_text_features)
        elif paired_input_ids is not None:
            translations = without_states(self.embed_text(paired_input_ids, paired_attention_mask, head))
        output = DualEncoderOutput(
            text_embeds=None if texts is None else normalize(texts.pooler_output),
            image_embeds=None if images is None else normalize(images.pooler_output),
            text_model_output=with_states(texts),
            vision_model_output=with_states(images),
            paired_text_embeds=None if translations is None else normalize(translations.pooler_output),
            temperature=self.similarity(),
            logit_bias=None if self.similarity.bias is None else self.similarity.bias.clone(),
        )
        return self.with_logits_and_loss(
            output, return_logits=return_logits, return_loss=return_loss, positives=positives
        )


class TowerFeatures(nn.Module):
    """The towers of a model as a dual encoder: its embeddings are the pooled features of the towers, before the
    model's linear layers.

    Args:
        model: a model of two towers, or another with a text tower and `pooled_texts`.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.config = model.config

    @property
    def device(self) -> torch.device:
        """Where the towers are."""
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of their weights."""
        return self.model.dtype

    def get_text_features(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> BaseModelOutputWithPooling:
        """Returns the pooled features of texts as `pooler_output` [N, W]; arguments as those of the model."""
        output = self.model.text_model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True)
        return BaseModelOutputWithPooling(pooler_output=self.model.pooled_texts(output, input_ids, attention_mask))

    def get_image_features(self, pixel_values: Tensor, **kwargs: Any) -> BaseModelOutputWithPooling:
        """Returns the pooled features of images as `pooler_output` [N, F]; keyword arguments are the tower's, such as
        the `spatial_shapes` of SigLIP 2."""
        pixel_values = in_dtype_of(self.model.vision_model, pixel_values)
        output = self.model.vision_model(pixel_values=pixel_values, return_dict=True, **kwargs)
        return BaseModelOutputWithPooling(pooler_output=pool_image(output, self.config.image_pooling))

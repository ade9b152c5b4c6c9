"""What SMALR and LIWE share: images come as features of a backbone, and a batch has several texts, in several
languages, about each of its images."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.errors import InputError
from ..configuration.feature_width import image_width
from .forward_keywords import Call, asks_for_states, tower_keywords
from .modeling_dual_encoder import (
    DualEncoderOutput,
    DualEncoderPreTrainedModel,
    build_tower,
    in_dtype_of,
    normalize,
    pool_image,
)


@dataclass
class WordDualEncoderOutput(DualEncoderOutput):
    """
    Args:
        language_ids ([n_texts]): of the texts.
        image_labels ([n_images]), text_labels ([n_texts]): what the images show and what the texts describe.
    """

    language_ids: Tensor | None = None
    image_labels: Tensor | None = None
    text_labels: Tensor | None = None


class WordDualEncoderModel(DualEncoderPreTrainedModel):
    """
    Training takes texts of several languages about the same images, in one batch: `image_labels` and `text_labels`
    say which belong together.

    Subclasses call `add_backbone`, and define `get_text_features`, `_embed_texts`, `_embed_image_features` and
    `contrastive_objective`. Their configuration has `vision_config`, `image_feature_size` and `temperature`.
    """

    output_class: ClassVar[type[WordDualEncoderOutput]] = WordDualEncoderOutput
    supports_gradient_checkpointing = False  # nothing here is deep

    def add_backbone(self) -> int:
        """Builds `vision_model`, or None where images are given as features; returns the features' width."""
        vision = self.config.vision_config
        self.vision_model: Any = build_tower(vision) if vision else None
        self.image_feature_size = image_width(vision) if vision else self.config.image_feature_size
        return self.image_feature_size

    def text_calls(self) -> list[Call]:
        return []  # recurrent layers know no keywords of transformers

    def image_calls(self) -> list[Call]:
        return [] if self.vision_model is None else [self.vision_model.forward]

    def _embed_texts(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        language_ids: Tensor | None,
        output_hidden_states: bool,
    ) -> dict[str, Any]:
        """What the output has of texts: `text_embeds`, `text_model_output`, `language_ids` and more."""
        raise NotImplementedError

    def _embed_image_features(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """A backbone's features [N, F] -> embeddings [N, width] and the last state before."""
        raise NotImplementedError

    @can_return_tuple
    def get_image_features(
        self,
        pixel_values: Tensor | None = None,
        image_features: Tensor | None = None,
        output_hidden_states: bool = False,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Embeds images, pixel_values [N, 3, H, W], or image_features [N, F] of a backbone; `pooler_output` [N,
        width] is not normalised.

        Raises:
            ValueError: for pixels, when the model has no backbone, and for features of another width.
            InputError: for neither.
        """
        (kwargs,) = tower_keywords(self, kwargs, self.image_calls())
        attentions = None
        if image_features is None:
            if pixel_values is None:
                raise InputError(f"{type(self).__name__} needs images: pixel_values or image_features")
            if self.vision_model is None:
                raise ValueError("this model has no backbone (vision_config): give image_features")
            pixel_values = in_dtype_of(self.vision_model, pixel_values)
            output = self.vision_model(pixel_values=pixel_values, return_dict=True, **kwargs)
            image_features, attentions = pool_image(output), output.get("attentions")
        elif (width := image_features.shape[-1]) != self.image_feature_size:
            raise ValueError(f"image_features of {width} numbers, where this model takes {self.image_feature_size}")
        pooled, hidden = self._embed_image_features(in_dtype_of(self, image_features))
        states = (image_features, hidden) if output_hidden_states else None
        return BaseModelOutputWithPooling(hidden, pooled, states, attentions)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        pixel_values: Tensor | None = None,
        attention_mask: Tensor | None = None,
        language_ids: Tensor | None = None,
        image_features: Tensor | None = None,
        image_labels: Tensor | None = None,
        text_labels: Tensor | None = None,
        return_loss: bool | None = None,
        return_logits: bool = True,
        positives: Tensor | None = None,
        **kwargs: Any,
    ) -> WordDualEncoderOutput:
        """Embeds what is given and compares it.

        Args:
            input_ids, attention_mask, language_ids: N texts, as in `get_text_features`.
            pixel_values ([M, 3, H, W]) or image_features ([M, F]): images.
            image_labels ([M]), text_labels ([N]): what the images show and what the texts describe; default: the
                n-th of both belong together.
            return_loss: compute `contrastive_objective`; default: when `positives` are given.
            return_logits: compute the similarities of all images with all texts.
            positives: of a collator's batch; the labels say the same and more.
            kwargs: transformers' own (`output_hidden_states`, `output_attentions`, …), and what the backbone names.

        Raises:
            ArgumentError: for a keyword that nobody knows.
            InputError: for nothing to embed.
        """
        _, image_kwargs = self.keywords_of_towers(kwargs)
        wants_states = bool(kwargs.get("output_hidden_states"))
        keeps_states = return_logits or asks_for_states(kwargs)
        output = self.output_class(
            image_labels=image_labels,
            text_labels=text_labels,
            temperature=torch.tensor(float(self.config.temperature), device=self.device),
        )
        if input_ids is not None:
            found = self._embed_texts(input_ids, attention_mask, language_ids, wants_states)
            output = replace(output, **found if keeps_states else found | {"text_model_output": None})
        if pixel_values is not None or image_features is not None:
            images = self.get_image_features(pixel_values, image_features, return_dict=True, **image_kwargs)
            embeds = normalize(images.pooler_output)
            output = replace(output, image_embeds=embeds, vision_model_output=images if keeps_states else None)
        return self.with_logits_and_loss(
            output, return_logits=return_logits, return_loss=return_loss, positives=positives
        )

    @staticmethod
    def labels(output: Any) -> tuple[Tensor, Tensor]:
        """The labels of the images and of the texts.

        Raises:
            ValueError: without texts or images, or without labels where there are not as many of both.
        """
        texts, images = output.text_embeds, output.image_embeds
        if texts is None or images is None:
            raise ValueError("a loss needs texts and their images")
        if output.text_labels is None and len(texts) != len(images):
            raise ValueError(
                f"{list(texts.shape)} texts and {list(images.shape)} images need text_labels and image_labels"
            )
        order = torch.arange(len(texts), device=texts.device)
        return (
            order if output.image_labels is None else output.image_labels,
            order if output.text_labels is None else output.text_labels,
        )

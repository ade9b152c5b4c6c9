"""The base of SMALR and LIWE: images are features of a backbone, and a batch has several texts, in several languages,
about each of its images.

    h_t = GRU(u_t, h_(t−1))                             of the words u of a text
    s(x, y) = cos(f(image features), g(h)) / t          (Burns et al. 2020; Wehrmann et al. 2019)
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.configuration_two_tower import image_width
from ..utils.errors import InputError
from .modeling_common import is_exporting
from .modeling_dual_encoder import (
    DualEncoderOutput,
    DualEncoderPreTrainedModel,
    build_tower,
    in_dtype_of,
    normalize,
    pool_image,
    tower_keywords,
)


@dataclass
class WordDualEncoderOutput(DualEncoderOutput):
    """Output of a dual encoder that reads words; an image and a text with equal labels belong together."""

    language_ids: Tensor | None = None
    image_labels: Tensor | None = None
    text_labels: Tensor | None = None


class WordDualEncoderModel(DualEncoderPreTrainedModel):
    """Base class of SMALR and LIWE; `_embed_image_features` maps features [N, F] to embeddings and a hidden state."""

    output_class: ClassVar[type[WordDualEncoderOutput]] = WordDualEncoderOutput
    supports_gradient_checkpointing = False  # the models have few layers

    def add_backbone(self) -> int:
        """Builds `vision_model`, which is `None` without a `vision_config`; returns the width of its features."""
        vision = self.config.vision_config
        self.vision_model: Any = build_tower(vision) if vision else None
        self.image_feature_size = image_width(vision) if vision else self.config.image_feature_size
        return self.image_feature_size

    def _embed_texts(
        self, input_ids: Tensor, attention_mask: Tensor | None, language_ids: Tensor | None, with_states: bool
    ) -> dict[str, Any]:
        """Returns the fields of the output that concern texts, such as `text_embeds`."""
        options = {"language_ids": language_ids, "output_hidden_states": with_states, "return_dict": True}
        texts = self.get_text_features(input_ids, attention_mask, **options)
        languages = input_ids.new_zeros(input_ids.shape[0]) if language_ids is None else language_ids
        embeds = normalize(texts.pooler_output)
        return {"text_embeds": embeds, "text_model_output": texts, "language_ids": languages}

    @can_return_tuple
    def get_image_features(
        self,
        pixel_values: Tensor | None = None,
        image_features: Tensor | None = None,
        output_hidden_states: bool = False,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Embeds images [N, 3, H, W], or features [N, F]; `pooler_output` [N, width] is not normalized."""
        attentions = None
        if image_features is None:
            if pixel_values is None:
                raise InputError(f"{type(self).__name__} needs images: pixel_values or image_features")
            if self.vision_model is None:
                raise InputError("this model has no backbone (vision_config): give image_features")
            kwargs = tower_keywords(kwargs, self.vision_model.forward)
            pixel_values = in_dtype_of(self.vision_model, pixel_values)
            output = self.vision_model(pixel_values=pixel_values, return_dict=True, **kwargs)
            image_features, attentions = pool_image(output), output.get("attentions")
        elif (width := image_features.shape[-1]) != self.image_feature_size:
            raise InputError(f"image_features have the width {width}; this model takes {self.image_feature_size}")
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
        """Embeds N texts and images [M, 3, H, W], or features [M, F] of a backbone, whichever are given, and compares
        them. An image and a text with equal `image_labels` [M] and `text_labels` [N] belong together, by default the
        n-th image and the n-th text; labels contain more than `positives`. Other arguments are as in `MuralModel`."""
        temperature = torch.tensor(float(self.config.temperature), device=self.device)
        found: dict[str, Any] = {"temperature": temperature, "image_labels": image_labels, "text_labels": text_labels}
        if input_ids is not None:
            with_states = bool(kwargs.get("output_hidden_states"))
            found |= self._embed_texts(input_ids, attention_mask, language_ids, with_states)
        if pixel_values is not None or image_features is not None:
            images = self.get_image_features(pixel_values, image_features, **kwargs | {"return_dict": True})
            found |= {"image_embeds": normalize(images.pooler_output), "vision_model_output": images}
            if self.training and input_ids is not None:
                found |= self._weights_of_objective()
        return self.with_logits_and_loss(self.output_class(**found), return_logits, return_loss, positives)

    def _weights_of_objective(self) -> dict[str, Tensor]:
        """Returns scalars that depend on the weights which only `contrastive_objective` reads: DistributedDataParallel
        expects gradients of the weights that the output of `forward` depends on."""
        return {}

    @staticmethod
    def labels(output: Any) -> tuple[Tensor, Tensor]:
        """Returns the labels of the images and of the texts."""
        texts, images = output.text_embeds, output.image_embeds
        if texts is None or images is None:
            raise ValueError("a loss needs texts and their images")
        if output.text_labels is None and len(texts) != len(images):
            raise ValueError(f"texts {list(texts.shape)} and images {list(images.shape)} need labels")
        order = torch.arange(len(texts), device=texts.device)
        given = output.image_labels, output.text_labels
        return order if given[0] is None else given[0], order if given[1] is None else given[1]


def gru_states(gru: nn.GRU, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the states at all words [N, T, directions * width], zeros at padding, and the last state of each
    direction [directions, N, width]. A text without words is read as if it had one. An exported graph is limited to
    the length of the texts that it was made with, because torch.export unrolls a GRU."""
    if is_exporting():
        return _gru_states_by_mask(gru, words, lengths.clamp(min=1))
    states, last = gru(pack(words, lengths))
    return pad(states, words.shape[1]), last


def _gru_states_by_mask(gru: nn.GRU, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    positions = torch.arange(words.shape[1], device=words.device)  # [T]
    is_word = (positions < lengths[:, None])[..., None]  # [N, T, 1]
    states, last = _run_direction(gru, "", words, lengths)
    if not gru.bidirectional:
        return states * is_word, last[None]
    # From the last word of each text to its first; applying it again restores the order.
    order = (lengths[:, None] - 1 - positions).clamp(min=0)[..., None]  # [N, T, 1]
    backward, first = _run_direction(gru, "_reverse", words.gather(1, order.expand_as(words)), lengths)
    backward = backward.gather(1, order.expand_as(backward))
    return torch.cat([states, backward], dim=-1) * is_word, torch.stack([last, first])


def _run_direction(gru: nn.GRU, direction: str, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Runs one direction of a GRU from left to right; returns all states [N, T, width] and the last [N, width]."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    weights = [getattr(gru, f"{name}_l0{direction}") for name in names]
    start = words.new_zeros(1, words.shape[0], gru.hidden_size)
    states, _ = torch.gru(words, start, weights, True, 1, 0.0, False, False, True)
    ends = (lengths - 1)[:, None, None].expand(-1, 1, states.shape[2])
    return states, states.gather(1, ends)[:, 0]


def pack(words: Tensor, lengths: Tensor) -> PackedSequence:
    """Packs the words of texts without padding, [N, T, ...]; of a text without words, the first position is kept."""
    return pack_padded_sequence(words, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)


def pad(packed: PackedSequence, length: int) -> Tensor:
    """Unpacks to [N, length, ...], with zeros at padding."""
    return pad_packed_sequence(packed, batch_first=True, total_length=length)[0]
